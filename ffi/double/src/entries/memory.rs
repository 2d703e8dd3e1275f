//! Device memory, and host memory that devices reach.

use super::answer;
use crate::world::{Need, call, code};
use core::ffi::{c_int, c_uint, c_void};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    call("cuMemGetInfo_v2", Need::Context, |world, device| {
        let all = world.settings.memory_bytes;
        // SAFETY: the caller's, for one number.
        unsafe { answer(free, (all - world.memory.used_bytes(device)) as usize) }?;
        // SAFETY: the caller's, for one number.
        unsafe { answer(total, all as usize) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    call("cuMemAlloc_v2", Need::Context, |world, device| {
        if bytes == 0 {
            return world.refuse(code::INVALID_VALUE, "cuMemAlloc of 0 bytes".to_owned());
        }
        let free = world.settings.memory_bytes - world.memory.used_bytes(device);
        if bytes as u64 > free {
            return Err(code::OUT_OF_MEMORY);
        }
        let allocated = world.memory.allocate(device, bytes as u64).ok_or(code::OUT_OF_MEMORY)?;
        // SAFETY: the caller's, for one address.
        unsafe { answer(address, allocated) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    call("cuMemFree_v2", Need::Context, |world, device| {
        let Some((bytes, owner)) = world.memory.allocations.get(&address).map(|one| (one.bytes, one.device))
        else {
            return world
                .refuse(code::INVALID_VALUE, format!("cuMemFree of {address:#x}, which is no allocation"));
        };
        if owner != device {
            return world.refuse(code::INVALID_VALUE, "cuMemFree with another device's context".to_owned());
        }
        if world.in_flight((address, bytes))
            || world.memory.imports.values().any(|import| import.of == address)
        {
            world.misused(format!("cuMemFree of {address:#x} while it is in flight or imported"));
            return Ok(());
        }
        world.memory.allocations.remove(&address);
        Ok(())
    })
}

/// Supports two attributes: the kind of memory and the device's ordinal. For registered host memory, the
/// ordinal is that of the registering device.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuPointerGetAttribute(value: *mut c_void, attribute: c_uint, address: u64) -> c_int {
    call("cuPointerGetAttribute", Need::Context, |world, _| {
        let (kind, device) = match world.memory.allocation_of(address) {
            Some((base, _)) => (2, world.memory.allocations[&base].device),
            None => (1, world.memory.registered_with((address, 1)).ok_or(code::INVALID_VALUE)?),
        };
        let found = match attribute {
            2 => kind,
            9 => device as c_int,
            _ => return Err(code::INVALID_VALUE),
        };
        // SAFETY: the caller's, for one number.
        unsafe { answer(value.cast(), found) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) -> c_int {
    call("cuMemGetAddressRange_v2", Need::Context, |world, _| {
        let (found, _) = world.memory.allocation_of(address).ok_or(code::NOT_FOUND)?;
        let size = world.memory.allocations[&found].bytes;
        // SAFETY: the caller's, for one address.
        unsafe { answer(base, found) }?;
        // SAFETY: the caller's, for one number.
        unsafe { answer(bytes, size as usize) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    call("cuMemHostRegister_v2", Need::Context, |world, device| {
        let span = (pointer.expose_provenance() as u64, bytes as u64);
        // Portable and mapped are the only flags.
        if bytes == 0
            || span.0 == 0
            || flags & !3 != 0
            || !span.0.is_multiple_of(4096)
            || !span.1.is_multiple_of(4096)
        {
            return world
                .refuse(code::INVALID_VALUE, format!("cuMemHostRegister of {span:?}, flags {flags}"));
        }
        let all = &world.memory.registered;
        if all.iter().any(|(base, (bytes, _))| crate::memory::overlap((*base, *bytes), span)) {
            return Err(code::ALREADY_REGISTERED);
        }
        let used: u64 = all.values().map(|(bytes, _)| bytes).sum();
        if used + span.1 > world.settings.register_bytes {
            return Err(code::OUT_OF_MEMORY);
        }
        let thread = std::thread::current().id();
        if !world.registering.contains(&thread) {
            world.registering.push(thread);
        }
        world.memory.registered.insert(span.0, (span.1, device));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostUnregister(pointer: *mut c_void) -> c_int {
    call("cuMemHostUnregister", Need::Context, |world, device| {
        let base = pointer.addr() as u64;
        match world.memory.registered.get(&base).copied() {
            None => Err(code::NOT_REGISTERED),
            Some((_, owner)) if owner != device => world
                .refuse(code::INVALID_VALUE, "cuMemHostUnregister with another device's context".to_owned()),
            Some((bytes, _)) => {
                if world.in_flight((base, bytes)) {
                    world.misused(format!("cuMemHostUnregister of {base:#x} while it is in flight"));
                }
                world.memory.registered.remove(&base);
                Ok(())
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemHostGetDevicePointer_v2(
    address: *mut u64,
    pointer: *mut c_void,
    flags: c_uint,
) -> c_int {
    call("cuMemHostGetDevicePointer_v2", Need::Context, |world, _| {
        let host = pointer.addr() as u64;
        if flags != 0 || !world.memory.is_registered((host, 1)) {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the caller's, for one address. Devices see registered memory at the host's address,
        // unless a test sets a distance.
        unsafe { answer(address, host + world.settings.mapped_at) }
    })
}

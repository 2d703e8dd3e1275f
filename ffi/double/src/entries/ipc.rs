//! IPC handles, within the process: the double accepts one process as exporter and importer.

use super::answer;
use crate::world::{Need, call, code};
use core::ffi::{c_int, c_uint};

type Handle = [u8; 64];

#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcGetMemHandle(handle: *mut Handle, address: u64) -> c_int {
    call("cuIpcGetMemHandle", Need::Context, |world, _| {
        let (base, _) = world.memory.allocation_of(address).ok_or(code::INVALID_VALUE)?;
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&base.to_le_bytes());
        bytes[8..12].copy_from_slice(&world.memory.allocations[&base].device.to_le_bytes());
        // SAFETY: the caller's, for 64 bytes.
        unsafe { answer(handle, bytes) }
    })
}

/// The handle is passed by value, as the real one's 64 bytes are.
#[repr(C)]
struct ByValue {
    bytes: Handle,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcOpenMemHandle_v2(address: *mut u64, handle: ByValue, flags: c_uint) -> c_int {
    call("cuIpcOpenMemHandle_v2", Need::Context, |world, device| {
        let of = handle.bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
        if flags != 1 || world.memory.allocations.get(&of).is_none_or(|found| found.device != device) {
            return Err(code::INVALID_VALUE);
        }
        if world.memory.imports.values().any(|import| import.of == of) {
            world.misused("a handle opened twice".to_owned());
        }
        let base = world.memory.import(device, of).ok_or(code::INVALID_VALUE)?;
        // SAFETY: the caller's, for one address.
        unsafe { answer(address, base) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuIpcCloseMemHandle(address: u64) -> c_int {
    call("cuIpcCloseMemHandle", Need::Context, |world, device| {
        let Some(import) = world.memory.imports.get(&address) else {
            return world.refuse(code::INVALID_VALUE, "an import closed twice".to_owned());
        };
        let (owner, span) = (import.device, (import.of, import.bytes));
        if owner != device {
            return world
                .refuse(code::INVALID_VALUE, "an import closed with another device's context".to_owned());
        }
        if world.in_flight(span) {
            world.misused(format!("an import of {:#x} closed while it is in flight", span.0));
        }
        world.memory.imports.remove(&address);
        Ok(())
    })
}

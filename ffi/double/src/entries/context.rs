//! The driver, its devices and their primary contexts.

use super::{answer, handle_of, pointer_of};
use crate::control::report;
use crate::engine;
use crate::world::{Device, Need, World, call, code, contexts};
use core::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Once;

static AT_EXIT: Once = Once::new();

#[unsafe(no_mangle)]
unsafe extern "C" fn cuInit(flags: c_uint) -> c_int {
    call("cuInit", Need::Nothing, |world, _| {
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        world.initialised = true;
        AT_EXIT.call_once(|| {
            // SAFETY: a function without arguments. If it is refused, there is no report.
            let _ = unsafe { libc::atexit(report) };
        });
        world.devices.resize_with(world.settings.devices as usize, Device::default);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    call("cuDriverGetVersion", Need::Nothing, |world, _| {
        // SAFETY: the caller's, for one number.
        unsafe { answer(version, world.settings.version) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    call("cuDeviceGetCount", Need::Init, |world, _| {
        // SAFETY: the caller's, for one number.
        unsafe { answer(count, world.devices.len() as c_int) }
    })
}

fn known(world: &World, device: c_int) -> Result<u32, i32> {
    match u32::try_from(device) {
        Ok(device) if (device as usize) < world.devices.len() => Ok(device),
        _ => Err(code::INVALID_DEVICE),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    call("cuDeviceGet", Need::Init, |world, _| {
        known(world, ordinal)?;
        // SAFETY: the caller's, for one number.
        unsafe { answer(device, ordinal) }
    })
}

/// # Safety
/// `place` is the caller's, for `len` bytes.
unsafe fn text(place: *mut c_char, len: c_int, text: &str) -> Result<(), i32> {
    let room = usize::try_from(len).map_err(|_| code::INVALID_VALUE)?;
    if place.is_null() || room <= text.len() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: `text` and its end fit into the caller's `room` bytes.
    unsafe { place.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    // SAFETY: as above.
    let end = unsafe { place.add(text.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int) -> c_int {
    call("cuDeviceGetName", Need::Init, |world, _| {
        let device = known(world, device)?;
        // SAFETY: the caller's, for `len` bytes.
        unsafe { text(name, len, &format!("kvstrata test double {device}")) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetPCIBusId(name: *mut c_char, len: c_int, device: c_int) -> c_int {
    call("cuDeviceGetPCIBusId", Need::Init, |world, _| {
        let device = known(world, device)?;
        // SAFETY: the caller's, for `len` bytes.
        unsafe { text(name, len, &format!("DB1E:{device:02X}:00.0")) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) -> c_int {
    call("cuDeviceGetUuid_v2", Need::Init, |world, _| {
        let mut bytes = *b"kvstrata double0";
        bytes[15] += known(world, device)? as u8;
        // SAFETY: the caller's, for 16 bytes.
        unsafe { answer(uuid, bytes) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) -> c_int {
    call("cuDeviceTotalMem_v2", Need::Init, |world, _| {
        known(world, device)?;
        // SAFETY: the caller's, for one number.
        unsafe { answer(bytes, world.settings.memory_bytes as usize) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: c_int) -> c_int {
    call("cuDeviceGetAttribute", Need::Init, |world, _| {
        known(world, device)?;
        let found = match attribute {
            // Multiprocessors; unified addressing; compute capability 9.0; host registration; stream
            // memory operations.
            16 => 4,
            41 | 99 | 122 => 1,
            75 => 9,
            76 => 0,
            // Threads per block.
            1 => 1024,
            _ => return Err(code::INVALID_VALUE),
        };
        // SAFETY: the caller's, for one number.
        unsafe { answer(value, found) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> c_int {
    call("cuDevicePrimaryCtxRetain", Need::Init, |world, _| {
        let device = known(world, device)?;
        let fresh = world.handle();
        let found = &mut world.devices[device as usize];
        found.retained += 1;
        let handle = *found.context.get_or_insert(fresh);
        engine::start(device);
        // SAFETY: the caller's, for one handle.
        unsafe { answer(context, pointer_of(handle)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    call("cuDevicePrimaryCtxRelease_v2", Need::Init, |world, _| {
        let device = known(world, device)?;
        match &mut world.devices[device as usize] {
            Device { retained: 0, .. } => {
                world.refuse(code::INVALID_CONTEXT, "a context released more often than retained".to_owned())
            }
            one => {
                one.retained -= 1;
                Ok(())
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPushCurrent_v2(context: *mut c_void) -> c_int {
    call("cuCtxPushCurrent_v2", Need::Init, |world, _| {
        let context = handle_of(context);
        match world.device_of(context) {
            Some(_) => contexts(|stack| stack.push(context)),
            None => {
                return world.refuse(code::INVALID_CONTEXT, "a context pushed that is not live".to_owned());
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut *mut c_void) -> c_int {
    call("cuCtxPopCurrent_v2", Need::Init, |world, _| match contexts(Vec::pop) {
        // SAFETY: the caller's, for one handle.
        Some(popped) => unsafe { answer(context, pointer_of(popped)) },
        None => world.refuse(code::INVALID_CONTEXT, "a context popped where none was pushed".to_owned()),
    })
}

/// Replaces the context on top, or becomes the first.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    call("cuCtxSetCurrent", Need::Init, |world, _| {
        let context = handle_of(context);
        if context != 0 && world.device_of(context).is_none() {
            return world.refuse(code::INVALID_CONTEXT, "a context set that is not live".to_owned());
        }
        contexts(|stack| {
            stack.pop();
            stack.extend((context != 0).then_some(context));
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(context: *mut *mut c_void) -> c_int {
    call("cuCtxGetCurrent", Need::Init, |_, _| {
        let top = contexts(|stack| stack.last().copied()).unwrap_or(0);
        // SAFETY: the caller's, for one handle.
        unsafe { answer(context, pointer_of(top)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int {
    call("cuCtxGetStreamPriorityRange", Need::Context, |_, _| {
        // SAFETY: the caller's, for one number.
        unsafe { answer(least, 0) }?;
        // SAFETY: the caller's, for one number.
        unsafe { answer(greatest, -5) }
    })
}

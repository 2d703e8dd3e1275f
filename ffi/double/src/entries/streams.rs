//! Streams, events, host functions, and values that streams write.

use super::{answer, handle_of, pointer_of};
use crate::engine::{Op, Stream, What};
use crate::world::{Event, Need, RELAXED, World, call, capture_mode, changed, code, lock, wait};
use core::ffi::{c_int, c_uint, c_void};
use std::collections::VecDeque;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(
    stream: *mut *mut c_void,
    flags: c_uint,
    priority: c_int,
) -> c_int {
    call("cuStreamCreateWithPriority", Need::Context, |world, device| {
        if flags & !1 != 0 || !(-5..=0).contains(&priority) {
            return world
                .refuse(code::INVALID_VALUE, format!("a stream of flags {flags}, priority {priority}"));
        }
        let handle = world.handle();
        world.streams.insert(handle, Stream { device, destroyed: false, queue: VecDeque::new() });
        // SAFETY: the caller's, for one handle.
        unsafe { answer(stream, pointer_of(handle)) }
    })
}

/// Queued operations are still executed.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> c_int {
    call("cuStreamDestroy_v2", Need::Context, |world, _| {
        let handle = handle_of(stream);
        match world.streams.get_mut(&handle) {
            Some(found) if !found.destroyed => {
                found.destroyed = true;
                if found.queue.is_empty() {
                    world.streams.remove(&handle);
                }
                Ok(())
            }
            _ => world.refuse(code::INVALID_HANDLE, "a stream destroyed twice".to_owned()),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamQuery(stream: *mut c_void) -> c_int {
    call("cuStreamQuery", Need::Context, |world, device| {
        let running = world.devices[device as usize].running.is_some();
        match world.streams.get(&handle_of(stream)) {
            Some(found) if found.queue.is_empty() && !running => Ok(()),
            Some(_) => Err(code::NOT_READY),
            None => world.refuse(code::INVALID_HANDLE, "a destroyed stream asked".to_owned()),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) -> c_int {
    call("cuStreamWaitEvent", Need::Context, |world, device| {
        let event = handle_of(event);
        let ticket = event_of(world, "cuStreamWaitEvent", event)?.recorded;
        let op = Op { what: What::Wait { event, ticket }, touches: Vec::new() };
        world.submit("cuStreamWaitEvent", device, handle_of(stream), op)?;
        event_of(world, "cuStreamWaitEvent", event)?.joined = true;
        Ok(())
    })
}

fn event_of<'w>(world: &'w mut World, name: &str, event: u64) -> Result<&'w mut Event, i32> {
    if world.events.get(&event).is_none_or(|event| event.destroyed) {
        return world.refuse(code::INVALID_HANDLE, format!("{name} of a destroyed event"));
    }
    world.events.get_mut(&event).ok_or(code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, flags: c_uint) -> c_int {
    call("cuEventCreate", Need::Context, |world, device| {
        // Blocking waits and no timing are the only flags.
        if flags & !3 != 0 {
            return world.refuse(code::INVALID_VALUE, format!("an event of flags {flags}"));
        }
        let handle = world.handle();
        let fresh = Event { device, recorded: 0, done: 0, joined: false, destroyed: false };
        world.events.insert(handle, fresh);
        // SAFETY: the caller's, for one handle.
        unsafe { answer(event, pointer_of(handle)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> c_int {
    call("cuEventRecord", Need::Context, |world, device| {
        let event = handle_of(event);
        let found = event_of(world, "cuEventRecord", event)?;
        if found.device != device {
            return world.refuse(code::INVALID_HANDLE, "cuEventRecord of another context's event".to_owned());
        }
        let ticket = found.recorded + 1;
        let op = Op { what: What::Record { event, ticket }, touches: Vec::new() };
        world.submit("cuEventRecord", device, handle_of(stream), op)?;
        let found = event_of(world, "cuEventRecord", event)?;
        (found.recorded, found.joined) = (ticket, false);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventQuery(event: *mut c_void) -> c_int {
    call("cuEventQuery", Need::Context, |world, _| {
        let found = event_of(world, "cuEventQuery", handle_of(event))?;
        if found.done < found.recorded { Err(code::NOT_READY) } else { Ok(()) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventSynchronize(event: *mut c_void) -> c_int {
    let mut world = lock();
    let epoch = world.epoch;
    let event = handle_of(event);
    let mut answer = world.admit("cuEventSynchronize", Need::Context);
    let device = answer.unwrap_or(0);
    changed();
    loop {
        if world.epoch != epoch {
            return code::CONTEXT_IS_DESTROYED;
        }
        if let Err(code) = answer {
            return code;
        }
        match event_of(&mut world, "cuEventSynchronize", event) {
            Err(code) => return code,
            Ok(found) if found.done >= found.recorded => return 0,
            Ok(_) => {}
        }
        match world.devices[device as usize].broken {
            Some(code) => answer = Err(code),
            None => world = wait(world),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> c_int {
    call("cuEventDestroy_v2", Need::Context, |world, _| {
        let event = handle_of(event);
        let found = event_of(world, "cuEventDestroy", event)?;
        match found {
            // Allowed: streams that wait for it continue to wait.
            Event { joined: true, .. } if found.done < found.recorded => found.destroyed = true,
            _ => {
                if found.done < found.recorded {
                    world.misused("an event destroyed before it has happened".to_owned());
                }
                world.events.remove(&event);
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) -> c_int {
    call("cuThreadExchangeStreamCaptureMode", Need::Init, |_, _| {
        // SAFETY: the caller's, for one mode.
        let wanted = unsafe { mode.as_ref() }.copied().ok_or(code::INVALID_VALUE)?;
        if wanted > RELAXED {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: as above.
        unsafe { answer(mode, capture_mode(wanted)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamIsCapturing(stream: *mut c_void, status: *mut c_uint) -> c_int {
    call("cuStreamIsCapturing", Need::Context, |world, _| {
        let captured = world.captured.contains(&handle_of(stream));
        // SAFETY: the caller's, for one status.
        unsafe { answer(status, u32::from(captured)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchHostFunc(
    stream: *mut c_void,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: *mut c_void,
) -> c_int {
    call("cuLaunchHostFunc", Need::Context, |world, device| {
        let function = function.ok_or(code::INVALID_VALUE)?;
        let op = Op { what: What::Host { function, data }, touches: Vec::new() };
        world.submit("cuLaunchHostFunc", device, handle_of(stream), op)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamWriteValue32_v2(
    stream: *mut c_void,
    address: u64,
    value: u32,
    flags: c_uint,
) -> c_int {
    call("cuStreamWriteValue32_v2", Need::Context, |world, device| {
        let reached = world.memory.is_device(address) || world.memory.is_registered((address, 4));
        if flags != 0 || !address.is_multiple_of(4) || !reached {
            return world.refuse(code::INVALID_VALUE, format!("a value written to {address:#x}"));
        }
        let op = Op { what: What::Write { address, value }, touches: vec![(address, 4)] };
        world.submit("cuStreamWriteValue32", device, handle_of(stream), op)
    })
}

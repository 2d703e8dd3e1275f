//! Operations, and the threads that execute them: one thread per device, which takes steps of the
//! device's streams.
//!
//! Invariants
//! - I1: operations of one stream are executed in the order of their submission, one at a time;
//!   operations of several streams in the order that the seed gives (seed 0: the oldest stream first).
//! - I2: kernels and host functions run without the world's lock, everything else under it.

use crate::memory::{Span, overlap};
use crate::world::{Answer, LEGACY, Registered, World, as_host_function, changed, code, lock, wait};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::VecDeque;
use std::thread;

/// Rows, copied from one place to another.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) target: u64,
    pub(crate) source: u64,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) target_pitch: u64,
    pub(crate) source_pitch: u64,
}

impl Rows {
    pub(crate) fn line(target: u64, source: u64, width: u64) -> Rows {
        Rows { target, source, width, height: 1, target_pitch: width, source_pitch: width }
    }

    pub(crate) fn targets(&self) -> impl Iterator<Item = Span> + use<> {
        let Rows { target, width, height, target_pitch, .. } = *self;
        (0..height).map(move |row| (target + row * target_pitch, width))
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = Span> + use<> {
        let Rows { source, width, height, source_pitch, .. } = *self;
        (0..height).map(move |row| (source + row * source_pitch, width))
    }
}

pub(crate) enum What {
    Copy(Vec<Rows>),
    Fill { span: Span, byte: u8 },
    Record { event: u64, ticket: u64 },
    Wait { event: u64, ticket: u64 },
    Write { address: u64, value: u32 },
    Host { function: unsafe extern "C" fn(*mut c_void), data: *mut c_void },
    Kernel { module: u64, kernel: Registered, grid: u32, block: u32, args: Vec<u64> },
}

/// One step of a stream.
pub(crate) struct Op {
    pub(crate) what: What,
    /// Memory that it may touch.
    pub(crate) touches: Vec<Span>,
}

// SAFETY: the owner of a host function's `data` must make it usable on another thread: host functions
// require that.
unsafe impl Send for Op {}

pub(crate) struct Stream {
    pub(crate) device: u32,
    pub(crate) destroyed: bool,
    pub(crate) queue: VecDeque<Op>,
}

/// A step of a generator that is good enough to make choices (SplitMix64).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Number of started engines: the devices from 0 on.
static ENGINES: AtomicU32 = AtomicU32::new(0);

/// Ensures that the device has a thread. Called under the world's lock.
pub(crate) fn start(device: u32) {
    // Relaxed: both under the world's lock.
    while ENGINES.load(Ordering::Relaxed) <= device {
        let device = ENGINES.fetch_add(1, Ordering::Relaxed);
        let engine = thread::Builder::new().name(format!("kvdouble-{device}"));
        engine.spawn(move || serve(device)).expect("the double needs a thread a device");
    }
}

fn serve(device: u32) {
    let mut world = lock();
    loop {
        let Some((stream, op)) = world.next(device) else {
            world = wait(world);
            continue;
        };
        world.executed += 1;
        if let Some(left) = &mut world.steps {
            *left -= 1;
        }
        if let Some(code) = world.breaks_now(device) {
            world.break_device(device, code);
            changed();
            continue;
        }
        let unlocked: Option<Box<dyn FnOnce()>> = match op.what {
            What::Host { function, data } => Some(Box::new(move || {
                // SAFETY: the caller of cuLaunchHostFunc promised that the function may be called once
                // with its data.
                as_host_function(|| unsafe { function(data) });
            })),
            What::Kernel { kernel, grid, block, ref args, .. } => {
                let args = args.clone();
                // SAFETY: the parameters are as large as the kernel was registered with, and aligned
                // to 8 bytes.
                Some(Box::new(move || unsafe { (kernel.run)(grid, block, args.as_ptr().cast()) }))
            }
            ref what => {
                world.execute(what);
                None
            }
        };
        if let Some(run) = unlocked {
            world.devices[device as usize].running = Some(op);
            drop(world);
            run();
            world = lock();
            if let Some(device) = world.devices.get_mut(device as usize) {
                device.running = None;
            }
        }
        world.bury(stream);
        changed();
    }
}

impl World {
    fn next(&mut self, device: u32) -> Option<(u64, Op)> {
        if self.steps == Some(0) || self.devices.get(device as usize)?.broken.is_some() {
            return None;
        }
        let ready: Vec<u64> = self.ready(device).collect();
        let chosen = match (self.seed, ready.len()) {
            (_, 0) => return None,
            (0, _) => 0,
            (_, streams) => random(&mut self.seed) as usize % streams,
        };
        let handle = ready[chosen];
        Some((handle, self.streams.get_mut(&handle)?.queue.pop_front()?))
    }

    /// Returns the streams whose next operation can be executed.
    fn ready(&self, device: u32) -> impl Iterator<Item = u64> {
        let of_device = self.streams.iter().filter(move |(_, stream)| stream.device == device);
        let ready = of_device.filter(|(_, stream)| match stream.queue.front().map(|op| &op.what) {
            None => false,
            Some(What::Wait { event, ticket }) => {
                self.events.get(event).is_none_or(|event| event.done >= *ticket)
            }
            Some(_) => true,
        });
        ready.map(|(handle, _)| *handle)
    }

    /// Whether nothing more happens without a call.
    pub(crate) fn is_idle(&self) -> bool {
        (0..).zip(&self.devices).all(|(ordinal, device)| {
            let stuck = self.steps == Some(0) || device.broken.is_some();
            device.running.is_none() && (stuck || self.ready(ordinal).next().is_none())
        })
    }

    fn breaks_now(&mut self, device: u32) -> Option<i32> {
        let device = &mut self.devices[device as usize];
        let (left, code) = device.breaks?;
        device.breaks = (left > 1).then_some((left - 1, code));
        (left <= 1).then_some(code)
    }

    /// Removes a destroyed stream when its last operation has been executed.
    fn bury(&mut self, handle: u64) {
        if self.streams.get(&handle).is_some_and(|stream| stream.destroyed && stream.queue.is_empty()) {
            self.streams.remove(&handle);
        }
    }

    fn execute(&mut self, what: &What) {
        match what {
            What::Copy(copies) => self.copy(copies),
            What::Fill { span, byte } => {
                if let Some(place) = self.memory.place(*span) {
                    // SAFETY: inside one allocation.
                    unsafe { place.pointer().write_bytes(*byte, span.1 as usize) };
                }
            }
            What::Record { event, ticket } => {
                if let Some(found) = self.events.get_mut(event) {
                    found.done = found.done.max(*ticket);
                    if found.destroyed && found.done >= found.recorded {
                        self.events.remove(event);
                    }
                }
            }
            What::Write { address, value } => {
                if let Some(place) = self.memory.place((*address, 4)) {
                    // SAFETY: 4 aligned bytes (checked at submission) that are only read as an atomic by
                    // the host meanwhile.
                    let word = unsafe { AtomicU32::from_ptr(place.pointer().cast()) };
                    // Release: operations executed before are visible to a thread that reads the value
                    // with Acquire.
                    word.store(*value, Ordering::Release);
                }
            }
            What::Wait { .. } | What::Host { .. } | What::Kernel { .. } => {}
        }
    }

    /// Copies the pieces of a batch in no particular order.
    fn copy(&mut self, copies: &[Rows]) {
        let first = if self.seed == 0 || copies.is_empty() {
            0
        } else {
            random(&mut self.seed) as usize % copies.len()
        };
        for copy in copies[first..].iter().chain(&copies[..first]) {
            for (source, target) in copy.sources().zip(copy.targets()) {
                if let (Some(from), Some(to)) = (self.memory.place(source), self.memory.place(target)) {
                    // SAFETY: both inside one allocation each, or host memory that its owner handed over
                    // until now.
                    unsafe { core::ptr::copy(from.pointer(), to.pointer(), source.1 as usize) };
                }
            }
        }
    }

    /// Returns every operation that is queued or running.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Op> {
        let queued = self.streams.values().flat_map(|stream| &stream.queue);
        queued.chain(self.devices.iter().filter_map(|device| device.running.as_ref()))
    }

    pub(crate) fn in_flight(&self, span: Span) -> bool {
        self.pending().any(|op| op.touches.iter().any(|touched| overlap(*touched, span)))
    }

    /// Queues an operation of the stream.
    pub(crate) fn submit(&mut self, name: &str, device: u32, stream: u64, op: Op) -> Answer {
        // A null handle denotes the legacy default stream, which exists if a test asks for it.
        let stream = stream.max(LEGACY);
        match self.streams.get_mut(&stream) {
            Some(found) if found.destroyed => {}
            Some(found) if found.device != device => {
                return self.refuse(code::INVALID_HANDLE, format!("{name} on another context's stream"));
            }
            Some(found) => {
                found.queue.push_back(op);
                return Ok(());
            }
            None => {}
        }
        self.refuse(code::INVALID_HANDLE, format!("{name} on a stream that is destroyed, or the default one"))
    }
}

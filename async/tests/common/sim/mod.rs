//! The tiers' hardware in virtual time. Times and faults are drawn from a seed.
//!
//! ```text
//!   request ──► fate drawn: time, fault ──► task: waits (virtual) ──► moves real bytes, or fails ──► landing
//!                                            └── hangs: waits for shutdown() ──► Abandoned
//! ```
//!
//! On a runtime of one thread with a paused clock, all of it happens in the same order each time. The
//! clock ticks in milliseconds, so a plan's times are a thousand times those of real hardware.
//!
//! While a request is in flight its target holds rubbish, and its source is read at the start or at the
//! end of that time. A caller that uses either too early, or gives it away, finds wrong bytes. Calls
//! that the ports forbid are noted besides, in `violations`.
//!
//! To be used beside `common` and `time`, its clock, all three at a test's root.
#![allow(dead_code, unused_imports, reason = "each test uses some of it")]

mod device;
mod disk;
mod remote;
mod turnstile;

pub use device::{Kept, SimMover};
pub use disk::{Counts, SimDisk};
pub use remote::{Events, Remote, Weather};

use crate::common::Random;
use crate::time::{Handle, Instant, sleep_until};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use turnstile::Turnstile;

/// Odds are in a thousand.
pub const ALWAYS: u64 = 1000;

/// The times of requests, and how many of a thousand go wrong.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// Of each request, beside the time of its bytes.
    pub latency: Range<Duration>,
    pub bytes_a_second: u64,
    /// Requests that take `spike_times` as long.
    pub spike: u64,
    pub spike_times: u32,
    /// Requests that fail: from a device for now, from a disk for good.
    pub fail: u64,
    /// Requests with changed bytes: at rest on the disk, or a slot that turns out to hold
    /// another block; in flight to a device.
    pub damage: u64,
    /// Requests that fail, with all requests after them.
    pub lose: u64,
    /// A device that fails keeps the memory of requests in flight.
    pub keep: bool,
    /// Requests that hang until the shutdown answers them.
    pub hang: u64,
    /// Blocks that the disk does not take.
    pub refuse: u64,
    /// Requests go one after the other, as over a drive or a link that moves so many bytes a second in all.
    pub one_by_one: bool,
    /// Times that the disk is told to forget blocks given back, and has no room for that just now.
    pub full: u64,
}

impl Plan {
    /// A plan without faults.
    pub fn calm(seed: u64) -> Plan {
        Plan {
            seed,
            latency: Duration::from_millis(20)..Duration::from_millis(200),
            bytes_a_second: 5_000_000,
            spike: 0,
            spike_times: 20,
            fail: 0,
            damage: 0,
            lose: 0,
            keep: false,
            hang: 0,
            refuse: 0,
            one_by_one: false,
            full: 0,
        }
    }

    /// A plan with every fault, except those that end the whole run.
    pub fn rough(seed: u64) -> Plan {
        Plan { spike: 50, fail: 50, damage: 50, hang: 5, refuse: 50, full: 200, ..Plan::calm(seed) }
    }
}

/// The fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Fails,
    Damaged,
    Lost,
    Hangs,
}

#[derive(Debug, Clone, Copy)]
struct Fate {
    takes: Duration,
    fault: Option<Fault>,
    /// Whether the source is read at the start.
    early: bool,
    /// A number for the code that damages bytes.
    number: u64,
}

/// A request in flight. Dropped, it is answered as abandoned.
trait UnderWay: Send + 'static {
    fn end(self, fate: Fate);
}

#[derive(Debug)]
struct Stage {
    runtime: Handle,
    play: Mutex<(Plan, Random)>,
    /// When the last of the requests that go one by one ends.
    busy: Mutex<Option<Instant>>,
    /// Opened at the shutdown.
    shut: Arc<Turnstile>,
    gate: Gate,
}

/// Requests made while it holds end when it lets them go, in the order of their times.
#[derive(Debug, Default)]
pub struct Gate(Mutex<Option<Arc<Turnstile>>>);

impl Gate {
    /// Requests from now on do not end before they are let go.
    pub fn hold(&self) {
        lock(&self.0).get_or_insert_default();
    }

    /// Lets so many requests end, now or when their time is over.
    pub fn let_go(&self, requests: usize) {
        lock(&self.0).iter().for_each(|gate| gate.let_pass(requests));
    }

    /// Lets all of them end.
    pub fn open(&self) {
        lock(&self.0).take().iter().for_each(|gate| gate.open());
    }
}

impl Stage {
    /// Runs on the current runtime.
    fn new(plan: Plan) -> Stage {
        let play = Mutex::new((plan.clone(), Random(plan.seed)));
        let busy = Mutex::default();
        Stage { runtime: Handle::current(), play, busy, shut: Arc::default(), gate: Gate::default() }
    }

    fn change(&self, change: impl FnOnce(&mut Plan)) {
        change(&mut lock(&self.play).0);
    }

    fn draw(&self, bytes: usize) -> Fate {
        let (plan, random) = &mut *lock(&self.play);
        let mut drawn = |odds: u64| random.below(ALWAYS) < odds;
        // Every fault is drawn, so that more of one kind do not change the others.
        let spike = drawn(plan.spike);
        let faults = [
            (plan.lose, Fault::Lost),
            (plan.fail, Fault::Fails),
            (plan.damage, Fault::Damaged),
            (plan.hang, Fault::Hangs),
        ];
        let faults = faults.map(|(odds, fault)| drawn(odds).then_some(fault));
        let early = drawn(ALWAYS / 2);
        let spread = (plan.latency.end - plan.latency.start).as_nanos() as u64;
        let latency = plan.latency.start + Duration::from_nanos(random.below(spread.max(1)));
        let takes = latency + Duration::from_secs_f64(bytes as f64 / plan.bytes_a_second as f64);
        let takes = if spike { takes * plan.spike_times } else { takes };
        Fate { takes, fault: faults.into_iter().flatten().next(), early, number: random.next() }
    }

    fn keeps(&self) -> bool {
        lock(&self.play).0.keep
    }

    fn refuses(&self) -> bool {
        let (plan, random) = &mut *lock(&self.play);
        random.below(ALWAYS) < plan.refuse
    }

    fn is_full(&self) -> bool {
        let (plan, random) = &mut *lock(&self.play);
        random.below(ALWAYS) < plan.full
    }

    fn perform(&self, fate: Fate, request: impl UnderWay) {
        let now = Instant::now();
        let until = match lock(&self.play).0.one_by_one {
            true => {
                let mut busy = lock(&self.busy);
                let from = busy.map_or(now, |busy| busy.max(now));
                *busy.insert(from + fate.takes)
            }
            false => now + fate.takes,
        };
        let (shut, gate) = (Arc::clone(&self.shut), lock(&self.gate.0).clone());
        self.runtime.spawn(async move {
            sleep_until(until).await;
            if let Some(gate) = gate {
                gate.pass().await;
            }
            if fate.fault == Some(Fault::Hangs) {
                shut.pass().await;
                return drop(request);
            }
            request.end(fate);
        });
    }

    /// Answers all requests that hang, or will hang.
    fn shutdown(&self) {
        self.gate.open();
        self.shut.open();
    }
}

/// Requests that a listener hears of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Read,
    Write,
    Forget,
}

type Listener = Arc<dyn Fn(Asked) + Send + Sync>;

#[derive(Default)]
struct Ear(Mutex<Option<Listener>>);

impl Ear {
    fn hears(&self, asked: Asked) {
        let ear = lock(&self.0).clone();
        if let Some(ear) = ear {
            ear(asked);
        }
    }
}

impl std::fmt::Debug for Ear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ear")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn flip(bytes: &mut [u8], number: u64) {
    let place = number as usize % bytes.len();
    bytes[place] ^= 1 << (number >> 61);
}

const RUBBISH: u8 = 0xA5;

//! In steady state copies by threads allocate nothing: lists come back, and the mover has room for them
//! meanwhile.

#![cfg(target_os = "linux")] // Locks allocate nothing there.

use kvstrata::movers::ThreadsMover;
use kvstrata::transfer::{Copies, Copy, DeviceMover, HostMemory, HostSide, Landed, Landing, Lands, Token};
use kvstrata_core::BlockId;
use kvstrata_ffi::device::SimDevice;
use kvstrata_testing::counting::{Counting, counted};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LISTS: u32 = 4;
const COPIES: u32 = 8;

/// Keeps lists for the next round; answers wait until it is open.
#[derive(Default)]
struct Inbox {
    state: Mutex<(bool, Vec<Vec<Copy>>)>,
    news: Condvar,
    /// Landings that have begun.
    begun: AtomicU32,
}

impl Lands for Inbox {
    fn landed(&self, landed: Landed) {
        let Landed::Copies(list) = landed else { panic!("copies were started") };
        assert!(list.iter().all(|copy| copy.outcome.is_ok()));
        self.begun.fetch_add(1, Relaxed);
        let mut state =
            self.news.wait_while(self.state.lock().expect("no panic"), |(open, _)| !*open).expect("no panic");
        state.1.push(list);
        self.news.notify_all();
    }
}

#[test]
fn copies_by_threads_allocate_nothing() {
    let (blocks, layers) = (LISTS * 2 * COPIES, [1000, 5000]);
    let device = Arc::new(SimDevice::with_layers(0, blocks as usize, &layers).expect("memory"));
    let memory = HostMemory::new(blocks as usize, &layers).expect("memory");
    let mover = ThreadsMover::new(device, Arc::clone(&memory), 2).expect("threads");
    let inbox = Arc::new(Inbox::default());
    let landing = || Landing::new(Arc::<Inbox>::clone(&inbox));
    let start = |number: u32, mut list: Vec<Copy>, up: bool| {
        list.clear();
        list.extend((number * COPIES..(number + 1) * COPIES).map(|block| {
            let host = if up {
                HostSide::Read(memory.read(block).expect("nobody writes it"))
            } else {
                HostSide::Write(memory.write(block).expect("nobody uses it"))
            };
            Copy::new(Token(u64::from(block)), BlockId(block), host, 0..2, true)
        }));
        mover.start(Copies::new(list, landing()));
    };
    let wait = |lists: u32| {
        let state = inbox.state.lock().expect("no panic");
        inbox.news.wait_while(state, |(_, lands)| lands.len() < lists as usize).expect("no panic")
    };
    // Both threads wait in a landing, so that all other lists are queued: more than there will ever be again.
    (0..2 * LISTS).for_each(|number| start(number, Vec::new(), false));
    // A thread allocates when it starts.
    while inbox.begun.load(Relaxed) < 2 {
        std::thread::yield_now();
    }
    inbox.state.lock().expect("no panic").0 = true;
    inbox.news.notify_all();
    let mut lists = std::mem::take(&mut wait(2 * LISTS).1);
    inbox.state.lock().expect("no panic").1.reserve(LISTS as usize);
    lists.truncate(LISTS as usize);
    lists.iter_mut().for_each(Vec::clear);
    let ((), count) = counted(|| {
        for round in 0..100 {
            for (number, list) in lists.drain(..).enumerate() {
                start(number as u32, list, round % 2 == 0);
            }
            lists.append(&mut wait(LISTS).1);
            // The guards go back before the next round takes them.
            lists.iter_mut().for_each(Vec::clear);
        }
    });
    assert_eq!(count, 0, "allocations in {} copies", 100 * LISTS * COPIES);
}

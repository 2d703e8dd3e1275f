//! Cases that need access from inside: a step that panics, a thread that is kept.

use super::*;
use crate::movers::cuda::{CudaMover, CudaMoverOptions};
use kvstrata_core::BlockId;
use kvstrata_core::layout::LayoutConfig;
use kvstrata_cuda_double::Double;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    CopyOptions, CudaCopy, CudaDevice, CudaDriver, CudaError, PinOptions, PinnedStorage,
};
use kvstrata_tiers::transfer::{Cause, Copy, Failure, HostMemory, HostSide, Landed, Landing, Lands, Token};
use std::sync::mpsc::{Receiver, Sender, channel};

struct Tells(Mutex<Sender<Landed>>);

impl Lands for Tells {
    fn landed(&self, landed: Landed) {
        self.0.lock().expect("no panic under it").send(landed).expect("heard");
    }
}

/// A mover with one thread over the double, and host memory of `blocks` blocks.
fn mover(blocks: u32) -> (Double, Arc<CudaDevice>, Arc<HostMemory>, CudaMover) {
    let double = Double::new();
    let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
    let arena = HostArena::new(blocks as usize, 64).expect("an arena");
    let memory = HostMemory::over(Arc::clone(&arena), &[64]).expect("one layer");
    let pinned = PinnedStorage::register(&device, arena, PinOptions::new(), &mut |_, _| {}).expect("pinned");
    let config = LayoutConfig::new().num_blocks(blocks).page_size(2).heads(1, 32);
    let none = CudaError::NoKernels { why: "as a test".to_owned() };
    let copy = CudaCopy::with(&device, Err(none), CopyOptions::new());
    let options = CudaMoverOptions::new().threads(1);
    let mover = CudaMover::allocate(copy, config, (Arc::clone(&memory), pinned), options).expect("a mover");
    (double, device, memory, mover)
}

/// Keeps the answering thread until the test lets it go.
struct Keeps(Mutex<(Sender<()>, Receiver<()>)>);

impl Lands for Keeps {
    fn landed(&self, _: Landed) {
        let held = self.0.lock().expect("no panic under it");
        held.0.send(()).expect("heard");
        held.1.recv().expect("the test goes on");
    }
}

/// Makes the only thread answer a list until the test sends to the returned channel.
fn keep_the_thread(mover: &CudaMover) -> Sender<()> {
    let ((kept, is_kept), (go_on, may_go_on)) = (channel(), channel());
    let landing = Landing::new(Arc::new(Keeps(Mutex::new((kept, may_go_on)))));
    mover.crew.start(Copies::new(vec![nowhere(HostSide::Zeros)], landing));
    is_kept.recv_timeout(Duration::from_secs(60)).expect("answered");
    go_on
}

/// A copy that fails at its first step: the device has no such block.
fn nowhere(host: HostSide) -> Copy {
    Copy::new(Token(0), BlockId(99), host, 0..1, false)
}

#[test]
fn onboard_list_goes_before_offloads_and_zeros() {
    let (double, device, memory, mover) = mover(2);
    let go_on = keep_the_thread(&mover);
    let (tells, heard) = channel();
    let tells: Arc<dyn Lands> = Arc::new(Tells(Mutex::new(tells)));
    let landing = || Landing::new(Arc::clone(&tells));
    for (token, host) in [
        (1, HostSide::Write(memory.write(0).expect("free"))),
        (2, HostSide::Zeros),
        (3, HostSide::Read(memory.read(1).expect("not written"))),
        (4, HostSide::Read(memory.read(1).expect("not written"))),
    ] {
        let copy = Copy { token: Token(token), ..nowhere(host) };
        mover.crew.start(Copies::new(vec![copy], landing()));
    }
    go_on.send(()).expect("the thread waits");
    let answer = || match heard.recv_timeout(Duration::from_secs(60)).expect("an answer") {
        Landed::Copies(list) => list[0].token.0,
        other => panic!("{other:?}"),
    };
    assert_eq!([(); 4].map(|()| answer()), [3, 4, 1, 2]);
    drop((mover, memory, device));
    double.reset();
}

/// The sums of a long list are made between others' turns.
#[test]
fn offload_list_gives_way_between_its_sums() {
    let (double, device, memory, mover) = mover(4);
    let go_on = keep_the_thread(&mover);
    let (tells, heard) = channel();
    let tells: Arc<dyn Lands> = Arc::new(Tells(Mutex::new(tells)));
    let landing = || Landing::new(Arc::clone(&tells));
    let shared = &mover.crew.shared;
    let written = |block| {
        let host = HostSide::Write(memory.write(block).expect("free"));
        Copy::new(Token(1), BlockId(block), host, 0..1, false)
    };
    let flight = Flight::new(shared);
    assert_eq!(flight.board_written(Copies::new((0..3).map(written).collect(), landing())), 3);
    shared.lock().under_way += 1;
    let up = nowhere(HostSide::Read(memory.read(3).expect("not written")));
    mover.crew.start(Copies::new(vec![up], landing()));
    // This thread makes one sum, since another list brings a block up.
    flight.step(shared);
    assert_eq!(flight.sums_left(), 2);
    go_on.send(()).expect("the thread waits");
    let answer = || match heard.recv_timeout(Duration::from_secs(60)).expect("an answer") {
        Landed::Copies(list) => list.iter().map(|copy| copy.outcome).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(answer(), [Err(Failure::of(Cause::Device))], "that one first");
    assert_eq!(answer(), [Ok(()); 3], "and then the other two sums");
    drop(flight);
    drop((mover, memory, device));
    double.reset();
}

#[test]
fn panicking_step_answers_its_list_and_the_thread_goes_on() {
    let (double, device, memory, mover) = mover(2);
    let (tells, heard) = channel();
    let tells: Arc<dyn Lands> = Arc::new(Tells(Mutex::new(tells)));
    let landing = || Landing::new(Arc::clone(&tells));
    let list = |block| {
        let held = HostSide::Write(memory.write(block).expect("free"));
        Copies::new(vec![Copy::new(Token(0), BlockId(block), held, 0..1, false)], landing())
    };
    let outcome = || match heard.recv_timeout(Duration::from_secs(60)).expect("an answer") {
        Landed::Copies(list) => (list[0].outcome, matches!(list[0].host, HostSide::Write(_))),
        other => panic!("{other:?}"),
    };
    mover.crew.start(list(0));
    assert_eq!(outcome(), (Ok(()), true));
    let shared = &mover.crew.shared;
    let flight = Flight::new(shared);
    flight.board_too_late(list(1));
    shared.lock().under_way += 1;
    shared.ready(&flight, 1);
    assert_eq!(outcome(), (Err(Failure::of(Cause::Abandoned)), true));
    // On the only thread.
    mover.crew.start(list(1));
    assert_eq!(outcome(), (Ok(()), true));
    drop(flight);
    drop((mover, memory, device));
    assert!(heard.try_recv().is_err(), "answered once");
    double.reset();
}

//! What only somebody inside can bring about: a step that panics.

use super::*;
use crate::movers::cuda::{CudaMover, CudaMoverOptions};
use crate::transfer::{Cause, Copy, Failure, HostMemory, HostSide, Landed, Landing, Lands, Token};
use kvstrata_core::BlockId;
use kvstrata_core::layout::LayoutConfig;
use kvstrata_cuda_double::Double;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    CopyOptions, CudaCopy, CudaDevice, CudaDriver, CudaError, PinOptions, PinnedStorage,
};
use std::sync::mpsc::{Sender, channel};

struct Tells(Mutex<Sender<Landed>>);

impl Lands for Tells {
    fn landed(&self, landed: Landed) {
        self.0.lock().expect("no panic under it").send(landed).expect("heard");
    }
}

#[test]
fn a_step_that_panics_answers_its_list_and_the_thread_goes_on() {
    let double = Double::new();
    let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
    let arena = HostArena::new(2, 64).expect("an arena");
    let memory = HostMemory::over(Arc::clone(&arena), &[64]).expect("one layer");
    let pinned = PinnedStorage::register(&device, arena, PinOptions::new(), &mut |_, _| {}).expect("pinned");
    let config = LayoutConfig::new().num_blocks(2).page_size(2).heads(1, 32);
    let none = CudaError::NoKernels { why: "as a test".to_owned() };
    let copy = CudaCopy::with(&device, Err(none), CopyOptions::new());
    let options = CudaMoverOptions::new().threads(1);
    let mover = CudaMover::allocate(copy, config, (Arc::clone(&memory), pinned), options).expect("a mover");
    let (tells, heard) = channel();
    let landing = Landing::new(Arc::new(Tells(Mutex::new(tells))));
    let list = |block| {
        let held = HostSide::Write(memory.write(block).expect("free"));
        Copies::new(vec![Copy::new(Token(0), BlockId(block), held, 0..1, false)], landing.clone())
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
    // By the only thread.
    mover.crew.start(list(1));
    assert_eq!(outcome(), (Ok(()), true));
    drop(flight);
    drop((mover, memory, device));
    assert!(heard.try_recv().is_err(), "answered once");
    double.reset();
}

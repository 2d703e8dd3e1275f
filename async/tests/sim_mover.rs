//! The simulated device mover, on which whole managers are tested, keeps its port's contract,
//! and has the faults of its plan.

mod common;
#[path = "common/sim/mod.rs"]
mod sim;
#[path = "common/tokio_time.rs"]
mod time;

use kvstrata::transfer::{
    Cause, Copies, Copy, DeviceMover, Failure, HostMemory, HostSide, Landed, Landing, Lands, Token,
};
use kvstrata_core::BlockId;
use kvstrata_core::storage::DevicePort;
use kvstrata_ffi::device::SimDevice;
use sim::{ALWAYS, Plan, SimMover};
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const LAYERS: [usize; 3] = [1000, 24, 3000];
const BYTES: usize = 4024;

fn run(body: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(body);
}

struct Ear(mpsc::UnboundedSender<Vec<Copy>>);

impl Lands for Ear {
    fn landed(&self, landed: Landed) {
        let Landed::Copies(list) = landed else { panic!("copies: {landed:?}") };
        self.0.send(list).expect("heard");
    }
}

struct Ground {
    mover: SimMover,
    device: Arc<SimDevice>,
    memory: Arc<HostMemory>,
    ear: Arc<dyn Lands>,
    answers: mpsc::UnboundedReceiver<Vec<Copy>>,
}

impl Ground {
    fn new(plan: Plan) -> Ground {
        let device = Arc::new(SimDevice::new(8, BYTES).expect("memory"));
        let memory = HostMemory::new(8, &LAYERS).expect("memory");
        let (heard, answers) = mpsc::unbounded_channel();
        let mover = SimMover::new(Arc::clone(&device), Arc::clone(&memory), plan);
        Ground { mover, device, memory, ear: Arc::new(Ear(heard)), answers }
    }

    fn down(&self, device: u32, host: u32) -> Copy {
        let host = HostSide::Write(self.memory.write(host).expect("idle"));
        Copy::new(Token(0), BlockId(device), host, 0..3, true)
    }

    fn up(&self, host: u32, device: u32, layers: Range<u32>, verify: bool) -> Copy {
        let host = HostSide::Read(self.memory.read(host).expect("not written"));
        Copy::new(Token(0), BlockId(device), host, layers, verify)
    }

    fn start(&self, list: Vec<Copy>) {
        self.mover.start(Copies::new(list, Landing::new(Arc::clone(&self.ear))));
    }

    /// The outcomes of the next list.
    async fn ended(&mut self) -> Vec<Result<(), Failure>> {
        let next = tokio::time::timeout(Duration::from_secs(60), self.answers.recv()).await;
        next.expect("in time").expect("heard").iter().map(|copy| copy.outcome).collect()
    }

    async fn carried_out(&mut self, list: Vec<Copy>) -> Vec<Result<(), Failure>> {
        self.start(list);
        self.ended().await
    }

    fn poke(&self, block: u32, seed: u8) {
        self.device.copy_in(block, 0, &bytes(seed)).expect("in range");
    }

    fn peek(&self, block: u32) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        self.device.copy_out(block, 0, &mut bytes).expect("in range");
        bytes
    }
}

fn bytes(seed: u8) -> Vec<u8> {
    (0..BYTES).map(|place| seed.wrapping_add((place % 251) as u8)).collect()
}

#[test]
fn copied_blocks_and_layers_arrive_exactly() {
    run(async {
        for seed in 0..8 {
            let mut ground = Ground::new(Plan::calm(seed));
            (0..3).for_each(|block| ground.poke(block, block as u8));
            let list = (0..3).map(|block| ground.down(block, 7 - block)).collect();
            assert_eq!(ground.carried_out(list).await, [Ok(()); 3]);
            for block in 0..3 {
                assert_eq!(*ground.memory.read(7 - block).expect("back"), bytes(block as u8));
            }
            ground.poke(5, 99);
            let list = vec![ground.up(7, 4, 0..3, true), ground.up(6, 5, 1..2, true)];
            assert_eq!(ground.carried_out(list).await, [Ok(()); 2]);
            assert_eq!(ground.peek(4), bytes(0));
            let (mut expected, layer) = (bytes(99), 1000..1024);
            expected[layer.clone()].copy_from_slice(&bytes(1)[layer]);
            assert_eq!(ground.peek(5), expected);
            assert!((0..8).all(|block| ground.memory.write(block).is_ok()));
            assert_eq!(ground.mover.violations(), [""; 0]);
        }
    });
}

#[test]
fn rotten_or_damaged_layer_is_a_mismatch_under_verify() {
    run(async {
        let mut ground = Ground::new(Plan::calm(1));
        ground.poke(0, 5);
        let list = vec![ground.down(0, 0)];
        assert_eq!(ground.carried_out(list).await, [Ok(())]);
        ground.mover.change(|plan| plan.damage = ALWAYS);
        let list = vec![ground.up(0, 1, 0..3, true)];
        assert_eq!(ground.carried_out(list).await, [Err(Failure::of(Cause::Mismatch))], "on its way");
        ground.mover.change(|plan| plan.damage = 0);
        let list = vec![ground.up(0, 1, 0..3, true)];
        assert_eq!(ground.carried_out(list).await, [Ok(())], "memory is whole");
        assert!(ground.mover.rot(0, 1010), "at rest, in layer 1");
        let held = ground.memory.read(0).expect("idle");
        assert!(!ground.mover.rot(0, 1010), "held");
        drop(held);
        let list = vec![
            ground.up(0, 1, 0..1, true),
            ground.up(0, 2, 1..2, true),
            ground.up(0, 3, 2..3, true),
            ground.up(0, 4, 0..3, false),
        ];
        let outcomes = ground.carried_out(list).await;
        assert_eq!(outcomes, [Ok(()), Err(Failure::of(Cause::Mismatch)), Ok(()), Ok(())]);
        assert_ne!(ground.peek(4), bytes(5));
    });
}

#[test]
fn target_of_a_copy_in_flight_is_rubbish_and_busy() {
    run(async {
        let mut ground = Ground::new(Plan::calm(1));
        ground.poke(0, 5);
        let list = vec![ground.down(0, 0)];
        assert_eq!(ground.carried_out(list).await, [Ok(())]);
        ground.poke(1, 5);
        ground.start(vec![ground.up(0, 1, 0..2, true)]);
        assert_ne!(ground.peek(1), bytes(5), "not before its answer");
        // Another layer may be copied; the same one, or the block as a source, may not.
        ground.start(vec![ground.up(0, 1, 2..3, true), ground.up(0, 1, 1..2, true), ground.down(1, 3)]);
        let mut lists = vec![ground.ended().await, ground.ended().await];
        lists.sort_by_key(Vec::len);
        let busy = Err(Failure::of(Cause::Busy));
        assert_eq!(lists, [vec![Ok(())], vec![Ok(()), busy, busy]]);
        assert_eq!(ground.mover.violations().len(), 2);
        assert_eq!(ground.peek(1), bytes(5));
        // After the answers the block is free again.
        let list = vec![ground.down(1, 3)];
        assert_eq!(ground.carried_out(list).await, [Ok(())]);
    });
}

#[test]
fn failures_pass_or_last_or_hang_until_the_shutdown() {
    run(async {
        let mut ground = Ground::new(Plan { fail: ALWAYS, ..Plan::calm(1) });
        let list = vec![ground.down(0, 0), ground.down(1, 1)];
        assert_eq!(ground.carried_out(list).await, [Err(Failure::passing(Cause::Device)); 2]);
        ground.mover.change(|plan| (plan.fail, plan.hang) = (0, ALWAYS));
        ground.start(vec![ground.down(0, 0)]);
        let answer = tokio::time::timeout(Duration::from_secs(3600), ground.answers.recv()).await;
        answer.expect_err("hangs");
        assert!(ground.memory.read(0).is_err(), "the device has it");
        ground.mover.change(|plan| (plan.hang, plan.lose) = (0, ALWAYS));
        let list = vec![ground.down(1, 1)];
        assert_eq!(ground.carried_out(list).await, [Err(Failure::of(Cause::Device))]);
        ground.mover.change(|plan| plan.lose = 0);
        let list = vec![ground.down(1, 1)];
        assert_eq!(ground.carried_out(list).await, [Err(Failure::of(Cause::Device))], "and from then on");
        ground.mover.shutdown();
        assert_eq!(ground.ended().await, [Err(Failure::of(Cause::Abandoned))]);
        assert!(ground.memory.write(0).is_ok());
    });
}

#[test]
fn dropped_mover_answers_copies_in_flight() {
    run(async {
        let Ground { mover, device, memory, ear, mut answers } = Ground::new(Plan::calm(1));
        device.copy_in(0, 0, &bytes(5)).expect("in range");
        mover.change(|plan| plan.hang = ALWAYS / 2);
        for block in 0..8 {
            let host = HostSide::Write(memory.write(block).expect("idle"));
            let copy = Copy::new(Token(0), BlockId(block), host, 0..3, true);
            mover.start(Copies::new(vec![copy], Landing::new(Arc::clone(&ear))));
        }
        drop((mover, ear));
        let mut outcomes = Vec::new();
        let patience = Duration::from_secs(60);
        while let Some(list) = tokio::time::timeout(patience, answers.recv()).await.expect("answered") {
            outcomes.extend(list.into_iter().map(|copy| copy.outcome));
        }
        assert_eq!(outcomes.len(), 8);
        let abandoned = outcomes.iter().filter(|of| **of == Err(Failure::of(Cause::Abandoned))).count();
        let done = outcomes.iter().filter(|of| of.is_ok()).count();
        assert!(abandoned > 0 && done > 0 && abandoned + done == 8, "{outcomes:?}");
    });
}

#[test]
fn zeros_arrive_or_fail_or_are_kept() {
    run(async {
        let mut ground = Ground::new(Plan::calm(1));
        (0..3).for_each(|block| ground.poke(block, block as u8));
        let zeros = |block, layers| Copy::new(Token(0), BlockId(block), HostSide::Zeros, layers, false);
        assert_eq!(ground.carried_out(vec![zeros(0, 0..3), zeros(1, 1..3)]).await, [Ok(()); 2]);
        assert_eq!(ground.peek(0), [0; BYTES]);
        assert_eq!(ground.peek(1)[..1000], bytes(1)[..1000]);
        assert!(ground.peek(1)[1000..].iter().all(|byte| *byte == 0) && ground.peek(2) == bytes(2));
        // In flight, a block is the mover's alone.
        ground.start(vec![zeros(2, 0..3), ground.down(2, 0)]);
        assert_eq!(ground.ended().await, [Ok(()), Err(Failure::of(Cause::Busy))]);
        assert_eq!(ground.mover.violations().len(), 1);
        ground.mover.change(|plan| plan.fail = ALWAYS);
        assert_eq!(ground.carried_out(vec![zeros(1, 0..3)]).await, [Err(Failure::passing(Cause::Device))]);
        ground.mover.change(|plan| (plan.fail, plan.lose, plan.keep) = (0, ALWAYS, true));
        assert_eq!(ground.carried_out(vec![zeros(1, 0..3)]).await, [Err(Failure::of(Cause::Device))]);
        let kept = ground.mover.kept();
        assert!(matches!(kept[..], [sim::Kept { up: true, device: 1, host: None }]), "{kept:?}");
    });
}

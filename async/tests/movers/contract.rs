//! The contract of every [`DeviceMover`](kvstrata::backend::transfer::DeviceMover), also of one with
//! faults: each copy that it reports is exact, and each list is answered once.

use crate::common::Random;
use crate::ground::{Field, Ground, Inbox, Move};
use crate::oracle::Oracle;
use kvstrata::backend::transfer::{Cause, Copies, DeviceMover, HostMemory, Landed, Landing, Lands};
use std::sync::{Arc, Mutex};

/// The field of each shape, with its oracle.
fn fields(ground: &dyn Ground, blocks: u32) -> impl Iterator<Item = (Field, Oracle)> {
    let shapes = ground.shapes().into_iter().enumerate();
    shapes.filter_map(move |(seed, layers)| {
        let field = ground.make(blocks, &layers)?;
        let oracle = Oracle::fill(&field, seed as u64);
        Some((field, oracle))
    })
}

/// All layers of these blocks.
fn moves(field: &Field, up: bool, verify: bool, blocks: impl Iterator<Item = (u32, u32)>) -> Vec<Move> {
    blocks.map(|(device, host)| Move { up, device, host, layers: field.layers(), verify }).collect()
}

/// Each range of layers, down and up, each time into another block.
pub fn layers_copied_down_and_up_are_exact(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 5) {
        let ends = field.layers().end;
        for (start, end) in (0..=ends).flat_map(|start| (start..=ends).map(move |end| (start, end))) {
            let down = Move { up: false, device: start % 5, host: end % 5, layers: start..end, verify: true };
            let outcomes = field.run(std::slice::from_ref(&down));
            oracle.note(&field, std::slice::from_ref(&down), &outcomes);
            oracle.check(&field);
            let up = Move { up: true, device: (start + 2) % 5, verify: oracle.is_sealed(&down), ..down };
            let outcomes = field.run(std::slice::from_ref(&up));
            oracle.note(&field, &[up], &outcomes);
            oracle.check(&field);
        }
    }
}

/// A block in parts, each in a list of its own, in any order: each leaves the bytes and the
/// sums of the others as they are.
pub fn layers_copied_in_any_order_are_exact(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 3) {
        let mut random = Random(u64::from(field.layers().end));
        for round in 0..12 {
            let (host, mut parts, mut from) = (round % 3, Vec::new(), 0);
            while from < field.layers().end {
                let to = from + 1 + random.below(u64::from(field.layers().end - from)) as u32;
                parts.push(from..to);
                from = to;
            }
            (1..parts.len()).for_each(|at| parts.swap(at, random.below(at as u64 + 1) as usize));
            for layers in parts {
                let part = [Move { up: false, device: (round + 1) % 3, host, layers, verify: true }];
                // A copy that faults spoil is made again.
                let mut copied = false;
                while !copied {
                    let outcomes = field.run(&part);
                    copied = outcomes[0].is_ok();
                    oracle.note(&field, &part, &outcomes);
                    oracle.check(&field);
                }
            }
            let up = moves(&field, true, true, [((round + 2) % 3, host)].into_iter());
            let outcomes = field.run(&up);
            oracle.note(&field, &up, &outcomes);
            oracle.check(&field);
        }
    }
}

/// Lists of any length, several at once, between blocks that no other list uses meanwhile.
pub fn random_lists_are_exact(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 12) {
        let mut random = Random(field.memory.arena().block_bytes() as u64);
        for _ in 0..40 {
            let mut shuffled = || {
                let mut blocks: Vec<u32> = (0..12).collect();
                (1..12).for_each(|at| blocks.swap(at as usize, random.below(at + 1) as usize));
                blocks
            };
            let (devices, hosts) = (shuffled(), shuffled());
            let mut pairs = devices.into_iter().zip(hosts);
            let mut lists = Vec::new();
            for _ in 0..4 {
                let (up, len) = (random.below(2) == 1, random.below(6) as usize);
                let mut list = moves(&field, up, true, pairs.by_ref().take(len));
                for one in &mut list {
                    let ends = u64::from(field.layers().end) + 1;
                    let (a, b) = (random.below(ends) as u32, random.below(ends) as u32);
                    one.layers = a.min(b)..a.max(b);
                    one.verify = oracle.is_sealed(one);
                }
                lists.push(list);
            }
            let inboxes: Vec<_> = lists.iter().map(|list| field.start(list)).collect();
            for (list, inbox) in lists.iter().zip(inboxes) {
                let answer = field.wait(&inbox);
                let outcomes = field.outcomes(list, &answer);
                drop(answer);
                oracle.note(&field, list, &outcomes);
            }
            oracle.check(&field);
        }
    }
}

/// One list with all blocks there are, down and up again in another order.
pub fn long_list_is_exact(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 64) {
        for (up, shift) in [(false, 7), (true, 30), (false, 1)] {
            let pairs = (0..64).rev().map(|block| (block, (block + shift) % 64));
            let mut list = moves(&field, up, true, pairs);
            list.iter_mut().for_each(|one| one.verify = oracle.is_sealed(one));
            let outcomes = field.run(&list);
            oracle.note(&field, &list, &outcomes);
            oracle.check(&field);
        }
    }
}

pub fn empty_list_is_answered(ground: &dyn Ground) {
    for (field, oracle) in fields(ground, 1) {
        assert!(field.wait(&field.start(&[])).is_empty());
        oracle.check(&field);
    }
}

/// Changed bytes in host memory are noticed where they are verified, and nowhere else.
pub fn flipped_bit_is_noticed_under_verify(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 4) {
        let down = moves(&field, false, true, [(0, 0), (1, 1)].into_iter());
        while !field.run(&down).iter().all(Result::is_ok) {}
        oracle.note(&field, &down, &[Ok(()), Ok(())]);
        for layer in field.layers() {
            let at = field.memory.layer(layer).expect("a layer");
            for byte in [at.start, at.end - 1] {
                let flip = || field.memory.write(0).expect("free")[byte] ^= 0x10;
                flip();
                oracle.host[0][byte] ^= 0x10;
                // The other block of the list is well; of this one, the layers up to the flipped one are.
                let up = moves(&field, true, true, [(2, 0), (3, 1)].into_iter());
                let before = [Move { layers: 0..layer, ..up[0].clone() }];
                let outcomes = field.run(&before);
                oracle.note(&field, &before, &outcomes);
                let answer = field.wait(&field.start(&up));
                let (flipped, well) = (answer[0].outcome, answer[1].outcome);
                let cause = flipped.expect_err("a flipped bit is never Ok").cause;
                if field.faulty.is_none() {
                    assert_eq!((cause, well), (Cause::Mismatch, Ok(())), "layer {layer}, byte {byte}");
                }
                oracle.note(&field, &up, &[flipped, well]);
                drop(answer);
                let unverified = [Move { verify: false, ..up[0].clone() }];
                let outcomes = field.run(&unverified);
                oracle.note(&field, &unverified, &outcomes);
                flip();
                oracle.host[0][byte] ^= 0x10;
                oracle.check(&field);
            }
        }
    }
}

/// Copies of a block that the device uses otherwise are busy, and leave it alone. Later ones are not.
pub fn copy_of_a_used_block_is_busy(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 3) {
        let Some(hold) = field.device.hold(1) else {
            println!("SKIP conflicts: this device cannot tell a block that is in use");
            return;
        };
        for up in [false, true] {
            let list = moves(&field, up, false, [(0, 0), (1, 1), (2, 2)].into_iter());
            let answer = field.wait(&field.start(&list));
            let outcomes: Vec<_> = answer.iter().map(|copy| copy.outcome).collect();
            assert!(outcomes[1].is_err(), "it was in use");
            if field.faulty.is_none() {
                assert_eq!(outcomes[1].expect_err("checked").cause, Cause::Busy);
                assert_eq!((outcomes[0], outcomes[2]), (Ok(()), Ok(())), "the others of the list");
            }
            drop(answer);
            // Untouched, so not noted.
            let others = [list[0].clone(), list[2].clone()];
            oracle.note(&field, &others, &[outcomes[0], outcomes[2]]);
        }
        drop(hold);
        oracle.check(&field);
        for up in [false, true] {
            let list = moves(&field, up, false, [(1, 1)].into_iter());
            let outcomes = field.run(&list);
            oracle.note(&field, &list, &outcomes);
            oracle.check(&field);
        }
    }
}

/// Copies that cannot be made fail, and the others of their list do not.
pub fn copy_of_a_missing_block_fails_alone(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 4) {
        let layers: Vec<usize> =
            field.layers().map(|layer| field.memory.layer(layer).expect("a layer").len()).collect();
        let elsewhere = HostMemory::new(4, &layers).expect("memory");
        let ends = field.layers().end;
        for up in [false, true] {
            let well = moves(&field, up, false, [(3, 3)].into_iter()).remove(0);
            let bad = [
                Move { device: 4, host: 0, ..well.clone() },
                Move { device: u32::MAX, host: 0, ..well.clone() },
                Move { layers: ends..ends + 1, device: 0, host: 0, ..well.clone() },
                Move { layers: u32::MAX - 1..u32::MAX, device: 0, host: 0, ..well.clone() },
            ];
            for one in bad {
                let list = [one, well.clone()];
                let answer = field.wait(&field.start(&list));
                let outcomes = [answer[0].outcome, answer[1].outcome];
                drop(answer);
                assert!(outcomes[0].is_err(), "{:?}", list[0]);
                assert!(outcomes[1].is_ok() || field.faulty.is_some(), "{:?}", list[0]);
                oracle.note(&field, &list[1..], &outcomes[1..]);
                oracle.check(&field);
            }
            let foreign = Field { memory: Arc::clone(&elsewhere), ..ground.make(4, &layers).expect("made") };
            let answer = foreign.wait(&foreign.start(std::slice::from_ref(&well)));
            assert!(answer[0].outcome.is_err(), "a block of another memory");
        }
    }
}

/// A mover that is dropped answers each list once, and each copy that it reports is exact.
pub fn dropped_mover_answers_each_list_once(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 48) {
        let lists: Vec<_> = (0..12)
            .map(|list| {
                let pairs = (4 * list..4 * list + 4).map(|block| (block, 47 - block));
                moves(&field, list % 2 == 1, false, pairs)
            })
            .collect();
        let inboxes: Vec<_> = lists.iter().map(|list| field.start(list)).collect();
        let Field { mover, memory, device, blocks, .. } = field;
        drop(mover);
        // Nothing is started any more: the oracle asks for bytes only.
        let field = Field { mover: Arc::new(Gone), memory, device, blocks, faulty: None };
        for (list, inbox) in lists.iter().zip(inboxes) {
            assert_eq!(inbox.answers(), 1, "answered when the mover has gone, and once");
            let outcomes: Vec<_> = inbox.answer().iter().map(|copy| copy.outcome).collect();
            for failure in outcomes.iter().filter_map(|outcome| outcome.err()) {
                assert!(matches!(failure.cause, Cause::Abandoned | Cause::Device), "{failure}");
            }
            oracle.note(&field, list, &outcomes);
        }
        // The check borrows each block alone, so the guards have come back.
        oracle.check(&field);
    }
}

#[derive(Debug)]
struct Gone;

impl DeviceMover for Gone {
    fn start(&self, _: Copies) {}

    fn blocks_at_once(&self) -> usize {
        1
    }

    fn describe(&self) -> String {
        String::new()
    }
}

/// A landing that starts the next list of a chain. The first list is empty, so it may be answered within
/// `start`.
pub fn landing_may_start_the_next_list(ground: &dyn Ground) {
    struct Chain {
        mover: Arc<dyn DeviceMover>,
        release: Option<Arc<dyn Fn() + Send + Sync>>,
        rest: Mutex<Vec<Copies>>,
        ended: Arc<Inbox>,
    }
    struct Link(Arc<Chain>);
    impl Lands for Link {
        fn landed(&self, landed: Landed) {
            let next = self.0.rest.lock().expect("no panic").pop();
            if let Some(copies) = next {
                self.0.mover.start(copies);
                if let Some(release) = &self.0.release {
                    release();
                }
                drop(landed);
            } else {
                self.0.ended.landed(landed);
            }
        }
    }
    for (field, _) in fields(ground, 40) {
        let chain = Arc::new(Chain {
            mover: Arc::clone(&field.mover),
            release: field.faulty.clone(),
            rest: Mutex::default(),
            ended: Arc::default(),
        });
        let list = |block: u32| {
            let one = moves(&field, block % 2 == 1, false, [(block, block)].into_iter()).remove(0);
            let landing = Landing::new(Arc::new(Link(Arc::clone(&chain))));
            Copies::new(vec![field.copy(block as usize, &one)], landing)
        };
        let first = Copies::new(Vec::new(), Landing::new(Arc::new(Link(Arc::clone(&chain)))));
        let rest = (0..40).rev().map(list).collect();
        *chain.rest.lock().expect("no panic") = rest;
        field.mover.start(first);
        let last = field.wait(&chain.ended);
        assert_eq!((last.len(), last[0].token.0), (1, 39));
        assert!(chain.rest.lock().expect("no panic").is_empty());
    }
}

/// Blocks, or layers of them, are zeros then, and nothing beside them is touched, with copies before and
/// after.
pub fn zeros_overwrite_exactly_their_blocks(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 9) {
        let ends = field.layers().end;
        for (start, end) in (0..=ends).flat_map(|start| (start..=ends).map(move |end| (start, end))) {
            let blocks = [(start % 4, start..end), (4 + end % 3, 0..ends), (7, 0..ends), (8, start..end)];
            let up = moves(&field, true, false, [(7, 1), (8, 2)].into_iter());
            let outcomes = field.run(&up);
            oracle.note(&field, &up, &outcomes);
            let answer = field.wait(&field.zero(&blocks));
            let outcomes = field.zeroed(&blocks, &answer);
            oracle.zeroed(&field, &blocks, &outcomes);
            oracle.check(&field);
            let down = moves(&field, false, false, [(7, 3), (8, 4)].into_iter());
            let outcomes = field.run(&down);
            oracle.note(&field, &down, &outcomes);
            oracle.check(&field);
        }
    }
}

/// Blocks that do not exist, or are in use, are not overwritten, and the others of the list are.
pub fn zeros_of_a_missing_block_fail_alone(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 4) {
        let ends = field.layers().end;
        let hold = field.device.hold(2);
        let bad = [(4, 0..ends), (u32::MAX, 0..ends), (0, ends..ends + 1), (0, u32::MAX - 1..u32::MAX)];
        for bad in bad.into_iter().chain(hold.is_some().then_some((2, 0..ends))) {
            let blocks = [bad, (1, 0..ends)];
            let answer = field.wait(&field.zero(&blocks));
            assert!(answer[0].outcome.is_err(), "{:?}", blocks[0]);
            let outcomes = field.zeroed(&blocks[1..], &answer[1..]);
            oracle.zeroed(&field, &blocks[1..], &outcomes);
            let again = moves(&field, true, false, [(1, 1)].into_iter());
            let outcomes = field.run(&again);
            oracle.note(&field, &again, &outcomes);
        }
        drop(hold);
        oracle.check(&field);
    }
}

/// Each list is answered once, when the mover has gone, and blocks reported as zeros are zeros.
pub fn dropped_mover_answers_zeros_once(ground: &dyn Ground) {
    for (field, mut oracle) in fields(ground, 48) {
        let ends = field.layers().end;
        let list = |list: u32| (4 * list..4 * list + 4).map(|block| (block, 0..ends)).collect::<Vec<_>>();
        let lists: Vec<_> = (0..12).map(list).collect();
        let inboxes: Vec<_> = lists.iter().map(|list| field.zero(list)).collect();
        let Field { mover, memory, device, blocks, .. } = field;
        drop(mover);
        let faulty: Arc<dyn Fn() + Send + Sync> = Arc::new(|| {});
        let field = Field { mover: Arc::new(Gone), memory, device, blocks, faulty: Some(faulty) };
        for (list, inbox) in lists.iter().zip(inboxes) {
            assert_eq!(inbox.answers(), 1, "answered when the mover has gone, and once");
            let outcomes = field.zeroed(list, &inbox.answer());
            oracle.zeroed(&field, list, &outcomes);
        }
        oracle.check(&field);
    }
}

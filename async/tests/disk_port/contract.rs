//! The contract of every disk while nothing goes wrong.

use crate::ground::{BYTES, Ground, HOST_BLOCKS, PATIENCE, SLOTS, bytes_of, hash, name, token};
use kvstrata::backend::transfer::{HostMemory, Landed, Landing, Lands, TierPort, TierRead, Token};
use kvstrata_core::BlockRef;
use kvstrata_ffi::disk::Urgency;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tokio::sync::mpsc;
use tokio::time::timeout;

pub async fn reads_bring_exact_bytes_into_their_own_buffers(mut ground: Ground) {
    let blocks = u64::from(SLOTS);
    ground.store(0..blocks).await;
    // All host memory is marked, so that a byte beside the buffers shows.
    for block in 0..HOST_BLOCKS as u32 {
        ground.memory.write(block).expect("idle").fill(0xEE);
    }
    // Every second host block, in another order than the writes.
    for number in (0..blocks).rev() {
        let (held, _) = ground.read(number, 2 * number as u32 + 1).expect("found");
        let bytes = ground.came().await.expect("read");
        assert_eq!(bytes.block(), 2 * number as usize + 1, "the buffer that was given");
        assert!(*bytes == bytes_of(number), "block {number}");
        ground.release(held);
    }
    for block in 0..HOST_BLOCKS as u32 {
        let bytes = ground.memory.read(block).expect("given back");
        let number = u64::from(block / 2);
        let expected = if block % 2 == 1 && number < blocks { bytes_of(number) } else { vec![0xEE; BYTES] };
        assert!(*bytes == expected, "host block {block}");
    }
    assert!(ground.close().await.is_empty());
}

/// At the moment of an answer, reports whether the block is found.
struct Finds {
    port: Arc<dyn TierPort>,
    found: mpsc::UnboundedSender<bool>,
}

impl Lands for Finds {
    fn landed(&self, landed: Landed) {
        let Landed::Write(Token(number), Ok(bytes)) = landed else { panic!("written: {landed:?}") };
        drop(bytes);
        let _ = self.found.send(self.port.find(hash(number), true).is_some());
    }
}

pub async fn block_is_found_from_its_answer_on(ground: Ground) {
    let (found, mut answers) = mpsc::unbounded_channel();
    let ear: Arc<dyn Lands> = Arc::new(Finds { port: Arc::clone(&ground.port), found });
    for number in 0..20 {
        assert!(ground.port.find(hash(number), true).is_none(), "not before it is written");
        let slot = ground.take(1).pop().expect("a slot");
        ground.port.write(kvstrata::backend::transfer::TierWrite {
            token: Token(number),
            slot,
            name: name(number),
            sum: None,
            bytes: ground.filled(0, number),
            landing: Landing::new(Arc::clone(&ear)),
        });
        let answer = timeout(PATIENCE, answers.recv()).await;
        assert_eq!(answer, Ok(Some(true)), "block {number}");
        assert_eq!(ground.port.find(hash(number), true).expect("and after it").id(), slot);
    }
}

pub async fn second_copy_is_answered_as_stored_and_not_kept(mut ground: Ground) {
    for block in 0..3 {
        ground.write(5, block);
    }
    for _ in 0..3 {
        ground.written().await.expect("stored, or there already");
    }
    let census = ground.port.pool().census();
    assert_eq!((census.inactive, census.owned, census.free), (1, 0, SLOTS as usize - 1));
    assert_eq!(ground.fetch(5).await, Some(Ok(bytes_of(5))));
}

pub async fn slots_are_reserved_once_and_given_back(mut ground: Ground) {
    ground.store(0..3).await;
    let mut taken = ground.take(SLOTS as usize + 10);
    taken.sort_unstable_by_key(|slot| slot.0);
    taken.dedup();
    assert_eq!(taken.len(), SLOTS as usize, "free ones and those of the three, each once");
    assert!(ground.take(1).is_empty());
    assert!((0..3).all(|number| ground.port.find(hash(number), true).is_none()), "forgotten");
    ground.give_back(taken.pop());
    assert_eq!(ground.take(SLOTS as usize).len(), 1);
    ground.give_back(taken);
    assert_eq!(ground.port.pool().free(), SLOTS as usize - 1);
}

pub async fn read_beside_an_eviction_brings_its_own_block(mut ground: Ground) {
    let blocks = u64::from(SLOTS);
    ground.store(0..blocks).await;
    // The oldest, which would be evicted first.
    let held: Vec<(BlockRef, Token)> =
        (0..8).map(|number| ground.read(number, number as u32).expect("found")).collect();
    let slots = ground.take(SLOTS as usize);
    assert_eq!(slots.len(), SLOTS as usize - held.len(), "all but what is held");
    assert!(slots.iter().all(|slot| held.iter().all(|(held, _)| held.id != *slot)));
    for (slot, number) in slots.into_iter().zip(blocks..) {
        let bytes = ground.filled(number as u32, number);
        ground.write_to(slot, number, bytes);
    }
    let (mut came, mut wrote) = (0, 0);
    while ground.outstanding() > 0 {
        match ground.next().await {
            Landed::Read(token, outcome) => {
                let place = held.iter().position(|(_, of)| *of == token).expect("a read");
                assert!(*outcome.expect("read") == bytes_of(place as u64), "block {place}");
                came += 1;
            }
            Landed::Write(_, outcome) => {
                outcome.expect("written");
                wrote += 1;
            }
            Landed::Copies(_) => unreachable!("token() has looked"),
        }
    }
    assert_eq!((came, wrote), (8, SLOTS - 8));
    held.into_iter().for_each(|(held, _)| ground.release(held));
    for number in (0..8).chain(blocks..2 * blocks - 8) {
        assert_eq!(ground.fetch(number).await, Some(Ok(bytes_of(number))), "block {number}");
    }
}

pub async fn many_requests_at_once_are_answered_exactly(mut ground: Ground) {
    let old = u64::from(SLOTS) / 2;
    ground.store(0..old).await;
    let mut expected = BTreeMap::new();
    let mut held = Vec::new();
    for block in 0..HOST_BLOCKS as u32 {
        if block % 8 == 0 {
            let number = old + u64::from(block / 8);
            let (_, token) = ground.write(number, block);
            expected.insert(token.0, number);
        } else {
            let number = u64::from(block) % old;
            let (read, token) = ground.read(number, block).expect("found");
            held.push(read);
            expected.insert(token.0, number);
        }
    }
    assert_eq!(ground.outstanding(), HOST_BLOCKS);
    while ground.outstanding() > 0 {
        let landed = ground.next().await;
        let number = expected[&token(&landed)];
        match landed {
            Landed::Read(_, bytes) => assert!(*bytes.expect("read") == bytes_of(number), "block {number}"),
            Landed::Write(_, bytes) => {
                assert!(*bytes.expect("written") == bytes_of(number), "block {number} comes back as it was");
            }
            Landed::Copies(_) => unreachable!("token() has looked"),
        }
    }
    held.into_iter().for_each(|held| ground.release(held));
    assert!((0..HOST_BLOCKS as u32).all(|block| ground.memory.write(block).is_ok()), "buffers are back");
    for number in 0..u64::from(SLOTS) {
        assert_eq!(ground.fetch(number).await, Some(Ok(bytes_of(number))), "block {number}");
    }
}

/// Asks for the next block from within the answer to the one before.
struct Chain {
    port: Arc<dyn TierPort>,
    memory: Arc<HostMemory>,
    blocks: u64,
    end: mpsc::UnboundedSender<u64>,
    this: Weak<Chain>,
}

impl Chain {
    fn ask(&self, number: u64) {
        let landing = Landing::new(self.this.upgrade().expect("it asks"));
        // Nothing is evicted here, so the block need not be held.
        let slot = self.port.find(hash(number), true).expect("found").id();
        self.port.read(TierRead {
            token: Token(number),
            slot,
            hash: hash(number),
            urgency: Urgency::Urgent,
            buffer: self.memory.write(0).expect("idle"),
            landing,
        });
    }
}

impl Lands for Chain {
    fn landed(&self, landed: Landed) {
        let Landed::Read(Token(number), Ok(bytes)) = landed else { panic!("read: {landed:?}") };
        assert!(*bytes == bytes_of(number));
        drop(bytes);
        match number + 1 == self.blocks {
            true => self.end.send(number).expect("heard"),
            false => self.ask(number + 1),
        }
    }
}

pub async fn landing_may_start_another_read(mut ground: Ground) {
    let blocks = 40;
    ground.store(0..blocks).await;
    let (end, mut ended) = mpsc::unbounded_channel();
    let (port, memory) = (Arc::clone(&ground.port), Arc::clone(&ground.memory));
    let chain = Arc::new_cyclic(|this| Chain { port, memory, blocks, end, this: Weak::clone(this) });
    chain.ask(0);
    assert_eq!(timeout(PATIENCE, ended.recv()).await, Ok(Some(blocks - 1)));
}

pub async fn requests_in_flight_at_the_port_drop_are_answered(mut ground: Ground) {
    let old = u64::from(SLOTS) / 2;
    ground.store(0..old).await;
    for block in 0..HOST_BLOCKS as u32 {
        match block % 8 {
            0 => _ = ground.write(old + u64::from(block / 8), block),
            _ => _ = ground.read(u64::from(block) % old, block).expect("found"),
        }
    }
    let memory = Arc::clone(&ground.memory);
    let last = ground.close().await;
    assert_eq!(last.len(), HOST_BLOCKS);
    for landed in last {
        let failed = matches!(landed, Landed::Read(_, Err(_)) | Landed::Write(_, Err(_)));
        assert!(!failed, "the device has answered them all: {landed:?}");
    }
    assert!((0..HOST_BLOCKS as u32).all(|block| memory.write(block).is_ok()), "buffers are back");
}

/// Erased slots are unowned. Given back, they hold other blocks later, with zeros or without.
pub async fn erased_slots_are_not_found_and_used_again(mut ground: Ground) {
    for zero in [false, true] {
        let slots = ground.store(0..4).await;
        let held = ground.port.find(hash(0), true).expect("stored").into_ref();
        assert_eq!(ground.port.reserve_this(held), None, "somebody holds it");
        ground.release(held);
        let taken: Vec<_> = (1..4)
            .map(|number| {
                let block = ground.port.find(hash(number), true).expect("stored").downgrade();
                ground.port.reserve_this(block).expect("nobody holds it")
            })
            .collect();
        assert_eq!(taken, slots[1..]);
        let failed = timeout(PATIENCE, ground.port.erase(taken.clone(), zero)).await;
        assert_eq!(failed.expect("in time"), []);
        ground.give_back(taken);
        assert!((1..4).all(|number| ground.port.find(hash(number), true).is_none()));
        assert_eq!(ground.fetch(0).await, Some(Ok(bytes_of(0))));
        assert_eq!(ground.port.pool().free(), SLOTS as usize - 1);
        ground.store(1..u64::from(SLOTS)).await;
        assert_eq!(ground.fetch(3).await, Some(Ok(bytes_of(3))));
        // For the next turn.
        ground.give_back(ground.take(SLOTS as usize));
    }
}

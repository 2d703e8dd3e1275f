//! The contract of every disk when something goes wrong: never a wrong byte, always an answer, and no
//! slot unaccounted for.

use crate::ground::{BYTES, Ground, SLOTS, bytes_of, hash};
use kvstrata::backend::transfer::{Cause, Failure, HostMemory};

pub async fn failed_write_is_not_found_and_its_slot_comes_back(mut ground: Ground) {
    ground.store(0..2).await;
    let longer = HostMemory::new(1, &[BYTES + 1]).expect("memory");
    for number in 10..20 {
        let slot = ground.take(1).pop().expect("a slot");
        ground.write_to(slot, number, longer.read(0).expect("idle"));
        assert_eq!(ground.written().await.map(drop), Err(Failure::of(Cause::Buffer)));
        assert!(longer.write(0).is_ok(), "the buffer is back with the answer");
        assert!(ground.port.find(hash(number), true).is_none());
    }
    let census = ground.port.pool().census();
    assert_eq!((census.free, census.inactive, census.owned), (SLOTS as usize - 2, 2, 0));
    assert_eq!(ground.fetch(1).await, Some(Ok(bytes_of(1))));
}

pub async fn rotten_block_is_rejected_and_gone(mut ground: Ground) {
    let slots = ground.store(0..3).await;
    ground.faults.rot(slots[1]);
    assert_eq!(ground.fetch(1).await, Some(Err(Failure::of(Cause::Rejected))));
    assert_eq!(ground.fetch(1).await, None);
    for number in [0, 2] {
        assert_eq!(ground.fetch(number).await, Some(Ok(bytes_of(number))));
    }
    assert_eq!(ground.port.pool().free(), SLOTS as usize - 2, "its slot is free again");
    ground.store(1..2).await;
    assert_eq!(ground.fetch(1).await, Some(Ok(bytes_of(1))), "and can be written again");
}

pub async fn failed_read_is_a_miss_and_other_blocks_stay(mut ground: Ground) {
    ground.store(0..3).await;
    ground.faults.fail_reads(true);
    let (held, _) = ground.read(1, 0).expect("found");
    let (other, _) = ground.read(1, 1).expect("found by two at once");
    let causes =
        [ground.came().await, ground.came().await].map(|came| came.map(drop).expect_err("it failed").cause);
    // The first read to fail empties the slot.
    assert_eq!(causes[0], Cause::Tier);
    assert!(matches!(causes[1], Cause::Tier | Cause::Rejected), "{causes:?}");
    ground.faults.fail_reads(false);
    for held in [held, other] {
        ground.release(held);
        // Refused while a reader holds it.
        ground.port.forget(held);
    }
    assert_eq!(ground.fetch(1).await, None);
    assert!(ground.memory.write(0).is_ok() && ground.memory.write(1).is_ok(), "buffers are back");
    assert_eq!(ground.port.pool().census().active, 0);
}

pub async fn lost_disk_answers_all_finds_nothing_and_gives_no_slots(mut ground: Ground) {
    ground.store(0..20).await;
    ground.faults.lose();
    let held: Vec<_> = (0..10).filter_map(|number| ground.read(number, number as u32)).collect();
    for _ in 0..held.len() {
        match ground.came().await {
            // The loss takes a moment.
            Ok(_) => {}
            Err(failure) => assert_eq!(failure, Failure::of(Cause::Lost)),
        }
    }
    held.into_iter().for_each(|(held, _)| ground.release(held));
    let mut quarantined = 0;
    while let Some(slot) = ground.take(1).pop() {
        let bytes = ground.filled(0, 100);
        ground.write_to(slot, 100, bytes);
        if let Err(failure) = ground.written().await {
            assert_eq!(failure, Failure::of(Cause::Lost));
            quarantined += 1;
        }
    }
    assert!(quarantined <= 1, "the first one to meet it says so");
    assert!((0..20).chain([100]).all(|number| ground.port.find(hash(number), true).is_none()));
    assert!(ground.take(SLOTS as usize).is_empty());
}

pub async fn write_to_a_lost_disk_parks_its_slot(mut ground: Ground) {
    let taken = ground.take(SLOTS as usize);
    ground.faults.lose();
    let mut met = false;
    for (slot, number) in taken.into_iter().zip(0..) {
        let bytes = ground.filled(0, number);
        ground.write_to(slot, number, bytes);
        match ground.written().await {
            // The loss takes a moment.
            Ok(_) => assert!(!met, "gone for good"),
            Err(failure) => {
                assert_eq!(failure, Failure::of(Cause::Lost));
                met = true;
            }
        }
        let census = ground.port.pool().census();
        assert_eq!(census.free, 0, "a slot of a lost disk is not free");
        assert!(!met || ground.take(1).is_empty());
    }
    assert!(met);
    assert!((0..u64::from(SLOTS)).all(|number| ground.port.find(hash(number), true).is_none()));
}

pub async fn erase_on_a_lost_disk_reports_the_failed_slots(ground: Ground) {
    let taken = ground.take(SLOTS as usize);
    ground.faults.lose();
    let mut met = false;
    for slot in &taken {
        let failed = ground.port.erase(vec![*slot], true).await;
        // The loss takes a moment.
        assert!(!met || failed == [*slot], "gone for good");
        met |= failed == [*slot];
    }
    assert!(met);
    assert_eq!(ground.port.erase(taken.clone(), false).await, taken, "the next opening may find them");
    assert!(ground.port.forget_for_good().await, "a lost one is passed over");
    assert_eq!(ground.port.pool().census().owned, taken.len(), "theirs who took them");
}

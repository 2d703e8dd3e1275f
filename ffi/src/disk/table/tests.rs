//! The table against a map; the records that `load` keeps of tables that are torn, moved,
//! doubled and cut off.

use super::*;
use crate::disk::format::{Shape, seal_of_payload};
use crate::disk::recovery::{HashKey, OwnerId};
use kvstrata_core::SequenceHash;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const VOLUME: u128 = 0xABCD << 64 | 0x1234;

fn superblock(slots: u32) -> Superblock {
    Superblock::plain(VOLUME, Shape::new(slots, 8192, 4096).expect("a shape"))
}

fn label(hash: u128) -> Label {
    let parent = (hash > 1).then(|| SequenceHash::from_u128(hash - 1)).and_then(HashKey::of);
    Label { hash: SequenceHash::from_u128(hash), parent, owner: OwnerId(hash as u64 % 5) }
}

fn record(hash: u128, sequence: u64) -> Record {
    Record { label: label(hash), sequence, seal: seal_of_payload(&hash.to_le_bytes()), payload_bytes: 16 }
}

/// The bytes of the file with these records in their slots.
fn image(slots: u32, records: &[(u32, Record)]) -> Vec<u8> {
    let mut bytes = vec![0; Shape::new(slots, 1, 512).expect("a shape").table_bytes() as usize];
    for (slot, record) in records {
        put(&mut bytes, *slot, &record.encode(VOLUME, *slot));
    }
    bytes
}

fn put(image: &mut [u8], slot: u32, record: &[u8; RECORD_BYTES]) {
    image[slot as usize * RECORD_BYTES..][..RECORD_BYTES].copy_from_slice(record);
}

/// Loads from a file of full length.
fn load(slots: u32, bytes: &[u8]) -> (Table, Vec<Recovered>, RejectedRecords) {
    let superblock = superblock(slots);
    Table::load(&superblock, bytes, superblock.shape.file_bytes, None).expect("memory")
}

/// The slots of the recovered blocks, in order.
fn slots_of(blocks: &[Recovered]) -> Vec<u32> {
    blocks.iter().map(|block| block.slot).collect()
}

/// Writes all dirty pages to the file. Returns the extents, in order.
fn write_back(table: &mut Table, image: &mut [u8], room_bytes: usize) -> Vec<Extent> {
    let mut room = vec![0xEE; room_bytes];
    let mut extents = Vec::new();
    while let Some(extent) = table.take_extent(&mut room) {
        image[extent.offset_bytes() as usize..][..extent.bytes()].copy_from_slice(&room[..extent.bytes()]);
        extents.push(extent);
    }
    extents
}

#[test]
fn empty_table_is_clean_and_gives_numbers_from_1() {
    let mut table = Table::new(VOLUME, 130, None).expect("memory");
    assert_eq!((table.pages(), table.dirty_pages()), (3, 0));
    assert_eq!((table.get(0), table.get(129), table.get(130), table.get(u32::MAX)), (None, None, None, None));
    assert_eq!((table.next_sequence(), table.next_sequence()), (1, 2));
    assert_eq!(table.next_sequence(), 3);
    table.set(129, &record(1, 1 << 41));
    assert_eq!(table.next_sequence(), (1 << 41) + 1);
    table.take_extent(&mut [0; PAGE_BYTES]);
    // Neither slots that do not exist nor slots that do not change make a page dirty.
    table.set(130, &record(1, 7));
    table.set(u32::MAX, &record(1, 7));
    table.clear(130);
    table.clear(5);
    assert_eq!((table.dirty_pages(), table.get(130)), (0, None));
    table.redirty(Extent { first_page: 0, pages: table.pages() });
    assert_eq!(table.dirty_pages(), 3);
    table.redirty(Extent { first_page: 2, pages: usize::MAX });
    table.redirty(Extent { first_page: usize::MAX, pages: 1 });
    assert_eq!(table.dirty_pages(), 3);
}

#[test]
fn records_written_back_are_found_in_write_order() {
    let (mut table, mut file) = (Table::new(VOLUME, 200, None).expect("memory"), image(200, &[]));
    for (slot, hash) in [(199, 1), (0, 2), (64, 3)] {
        let sequence = table.next_sequence();
        table.set(slot, &record(hash, sequence));
        assert_eq!(table.get(slot), Some(record(hash, sequence)));
    }
    assert_eq!(write_back(&mut table, &mut file, 1 << 17).len(), 1);
    let (mut again, blocks, rejected) = load(200, &file);
    assert_eq!((slots_of(&blocks), rejected), (vec![199, 0, 64], RejectedRecords::default()));
    assert_eq!((blocks[1].label, blocks[1].sequence), (label(2), 2));
    let first = Label { hash: SequenceHash::from_u128(1), parent: None, owner: OwnerId(1) };
    assert_eq!(blocks[0].label, first);
    assert_eq!((again.dirty_pages(), again.next_sequence()), (0, 4));

    table.clear(0);
    write_back(&mut table, &mut file, 1 << 17);
    assert_eq!(slots_of(&load(200, &file).1), [199, 64]);
}

#[test]
fn records_of_another_place_or_with_a_flipped_bit_are_dropped() {
    let records = [(0, record(1, 1)), (70, record(2, 2)), (140, record(3, 3))];
    let mut bytes = image(200, &records);
    // Misdirected within the volume, and left by another volume.
    put(&mut bytes, 1, &record(4, 4).encode(VOLUME, 2));
    put(&mut bytes, 3, &record(5, 5).encode(VOLUME + 1, 3));
    bytes[70 * RECORD_BYTES + 20] ^= 4;
    let (mut table, blocks, rejected) = load(200, &bytes);
    assert_eq!(slots_of(&blocks), [0, 140]);
    assert_eq!(rejected, RejectedRecords { record: 3, ..Default::default() });
    assert_eq!((table.get(1), table.get(3), table.get(70)), (None, None, None));
    // They are cleared in the file too, and stay away.
    assert_eq!(table.dirty_pages(), 2);
    write_back(&mut table, &mut bytes, PAGE_BYTES);
    assert_eq!(bytes, image(200, &[records[0], records[2]]));
    assert_eq!(load(200, &bytes).2.total(), 0);
}

#[test]
fn lengths_that_no_slot_holds_are_dropped() {
    let long = |payload_bytes, sequence: u64| Record { payload_bytes, ..record(sequence.into(), sequence) };
    let (lengths, all) = ([1, 8192, 8193, u32::MAX, 0], 0..5_u32);
    let records: Vec<_> =
        all.zip(lengths).map(|(slot, bytes)| (slot, long(bytes, u64::from(slot) + 1))).collect();
    let (table, blocks, rejected) = load(5, &image(5, &records));
    assert_eq!(slots_of(&blocks), [0, 1]);
    assert_eq!(rejected, RejectedRecords { length: 3, ..Default::default() });
    assert_eq!((table.get(2), table.dirty_pages()), (None, 1));
}

#[test]
fn later_of_two_records_of_a_block_stays() {
    let records = [
        (0, record(9, 5)),
        (100, record(9, 6)),
        (150, record(9, 4)),
        (151, record(8, 1)),
        (152, record(8, 1)),
    ];
    let (mut table, blocks, rejected) = load(200, &image(200, &records));
    assert_eq!(slots_of(&blocks), [151, 100]);
    assert_eq!(rejected, RejectedRecords { duplicate: 3, ..Default::default() });
    assert_eq!((table.get(0), table.get(100), table.get(150)), (None, Some(record(9, 6)), None));
    assert_eq!((table.dirty_pages(), table.next_sequence()), (2, 7));
}

#[test]
fn blocks_of_hashes_that_differ_in_one_half_are_two() {
    let records =
        [(0, record(7, 1)), (1, record(7 | 1 << 64, 2)), (2, record(7 | 1 << 127, 3)), (3, record(8, 4))];
    let (table, blocks, rejected) = load(4, &image(4, &records));
    assert_eq!((slots_of(&blocks), rejected.total(), table.dirty_pages()), (vec![0, 1, 2, 3], 0, 0));
}

#[test]
fn file_or_a_table_that_became_shorter_loses_only_its_end() {
    let records: Vec<_> =
        (0..200).map(|slot| (slot, record(u128::from(slot) + 1, u64::from(slot) + 1))).collect();
    let (bytes, superblock) = (image(200, &records), superblock(200));
    // Slot 120 is cut in the middle.
    let (mut table, blocks, rejected) =
        Table::load(&superblock, &bytes, superblock.shape.offset(120) + 4096, None).expect("memory");
    assert_eq!((blocks.len(), rejected), (120, RejectedRecords { truncated: 80, ..Default::default() }));
    assert_eq!((table.get(119), table.get(120)), (Some(records[119].1), None));
    assert_eq!((table.dirty_pages(), table.next_sequence()), (3, 121));

    // Record 130 is cut in the middle: its page is written again as a whole.
    let (table, blocks, rejected) = load(200, &bytes[..130 * RECORD_BYTES + 63]);
    assert_eq!((blocks.len(), rejected), (130, RejectedRecords { table: 70, ..Default::default() }));
    assert_eq!(table.dirty_pages(), 2);
    let (table, blocks, rejected) = load(200, &[]);
    assert_eq!((blocks.len(), rejected.table, table.dirty_pages()), (0, 200, 4));
    let (table, blocks, rejected) = Table::load(&superblock, &bytes, 0, None).expect("memory");
    assert_eq!((blocks.len(), rejected.truncated, table.dirty_pages()), (0, 200, 4));
    // Bytes beyond the table are ignored.
    let longer = [bytes, vec![0xEE; 100]].concat();
    assert_eq!((load(200, &longer).1.len(), load(200, &longer).2.total()), (200, 0));
}

#[test]
fn sequence_number_never_overflows() {
    let bytes = image(10, &[(3, record(1, MAX_SEQUENCE))]);
    let superblock = Superblock { writes: u64::MAX, ..superblock(10) };
    let loaded = Table::load(&superblock, &bytes, superblock.shape.file_bytes, None);
    let (mut table, blocks, _) = loaded.expect("memory");
    assert_eq!((blocks.len(), table.next_sequence(), table.next_sequence()), (1, MAX_SEQUENCE, MAX_SEQUENCE));
    table.set(4, &record(1, u64::MAX));
    assert_eq!(table.next_sequence(), MAX_SEQUENCE);
}

#[test]
fn extents_join_near_pages_and_wrap_around() {
    let mut table = Table::new(VOLUME, 64 * 64, None).expect("memory");
    let set = |table: &mut Table, page: u32| {
        let sequence = table.next_sequence();
        table.set(page * 64, &record(1, sequence));
    };
    let mut room = vec![0; 20 * PAGE_BYTES];
    let extent = |first_page, pages| Some(Extent { first_page, pages });
    // 7 clean pages between 0 and 8 are joined, 8 between 8 and 17 are not.
    for page in [0, 8, 17, 63] {
        set(&mut table, page);
    }
    assert_eq!(table.take_extent(&mut room), extent(0, 9));
    // Dirty again behind the cursor: the others come first.
    set(&mut table, 0);
    assert_eq!(table.take_extent(&mut room), extent(17, 1));
    assert_eq!(table.take_extent(&mut room), extent(63, 1));
    assert_eq!(table.take_extent(&mut room), extent(0, 1));
    assert_eq!(table.take_extent(&mut room), None);
    // Room ends an extent; less than a page takes none.
    for page in 20..40 {
        set(&mut table, page);
    }
    assert_eq!(table.take_extent(&mut room[..PAGE_BYTES - 1]), None);
    assert_eq!(table.take_extent(&mut room[..3 * PAGE_BYTES + 1]), extent(20, 3));
    assert_eq!(table.take_extent(&mut room), extent(23, 17));
    set(&mut table, 39);
    let failed = table.take_extent(&mut room).expect("one page is dirty");
    assert_eq!((failed, table.dirty_pages()), (Extent { first_page: 39, pages: 1 }, 0));
    table.redirty(failed);
    assert_eq!(table.dirty_pages(), 1);
    assert_eq!(table.take_extent(&mut room), Some(failed));
    // A gap that would end beyond the room is not begun.
    set(&mut table, 40);
    set(&mut table, 44);
    assert_eq!(table.take_extent(&mut room[..4 * PAGE_BYTES]), extent(40, 1));
    assert_eq!(table.take_extent(&mut room[..4 * PAGE_BYTES]), extent(44, 1));
}

#[derive(Debug, Clone)]
enum Step {
    Set { slot: u32, hash: u128 },
    Clear { slot: u32 },
    Take { pages: usize, fails: bool },
}

fn any_step(slots: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..slots, 1..50_u128).prop_map(|(slot, hash)| Step::Set { slot, hash }),
        2 => (0..slots).prop_map(|slot| Step::Clear { slot }),
        2 => (1..20_usize, prop::bool::weighted(0.2)).prop_map(|(pages, fails)| Step::Take { pages, fails }),
    ]
}

proptest! {
    /// Compares with a map of slots, a set of dirty pages, and a file.
    #[test]
    fn written_back_file_equals_the_table(steps in prop::collection::vec(any_step(64 * 40), 0..200)) {
        let slots = 64 * 40;
        let (mut table, mut file) = (Table::new(VOLUME, slots, None).expect("memory"), image(slots, &[]));
        let (mut held, mut dirty) = (BTreeMap::new(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Set { slot, hash } => {
                    let record = record(hash, table.next_sequence());
                    table.set(slot, &record);
                    held.insert(slot, record);
                    dirty.insert(slot as usize / 64);
                }
                Step::Clear { slot } => {
                    table.clear(slot);
                    if held.remove(&slot).is_some() {
                        dirty.insert(slot as usize / 64);
                    }
                }
                Step::Take { pages, fails } => {
                    let mut room = vec![0xEE; pages * PAGE_BYTES];
                    let Some(extent) = table.take_extent(&mut room) else {
                        prop_assert!(dirty.is_empty());
                        continue;
                    };
                    let end = extent.first_page + extent.pages;
                    prop_assert!((1..=pages).contains(&extent.pages));
                    prop_assert!(dirty.contains(&extent.first_page) && dirty.contains(&(end - 1)));
                    if fails {
                        table.redirty(extent);
                        dirty.extend(extent.first_page..end);
                    } else {
                        file[extent.offset_bytes() as usize..][..extent.bytes()]
                            .copy_from_slice(&room[..extent.bytes()]);
                        dirty.retain(|page| !(extent.first_page..end).contains(page));
                    }
                }
            }
            prop_assert_eq!(table.dirty_pages(), dirty.len());
        }
        for slot in 0..slots {
            prop_assert_eq!(table.get(slot), held.get(&slot).copied());
        }
        write_back(&mut table, &mut file, 1 << 17);
        prop_assert_eq!(table.dirty_pages(), 0);
        let expected: Vec<_> = held.into_iter().collect();
        prop_assert!(file == image(slots, &expected));
    }

    /// For any bytes: records in the right slots stay, others go, no hash occurs twice, and a second load
    /// agrees.
    #[test]
    fn loading_twice_finds_the_same_records(
        kinds in prop::collection::vec((0..6_u8, 1..30_u128, 1..100_u64), 0..200),
        cut in any::<prop::sample::Index>(),
    ) {
        let slots = 200;
        let mut bytes = image(slots, &[]);
        for (slot, (kind, hash, sequence)) in (0..slots).zip(kinds) {
            match kind {
                0 => {}
                1 => put(&mut bytes, slot, &record(hash, sequence).encode(VOLUME, slot ^ 1)),
                2 => put(&mut bytes, slot, &[hash as u8; RECORD_BYTES]),
                _ => put(&mut bytes, slot, &record(hash, sequence).encode(VOLUME, slot)),
            }
        }
        let (mut table, blocks, _) = load(slots, &bytes[..=cut.index(bytes.len())]);
        let hashes: BTreeSet<_> = blocks.iter().map(|block| block.label.hash).collect();
        prop_assert_eq!(hashes.len(), blocks.len());
        prop_assert!(blocks.is_sorted_by_key(|block| (block.sequence, block.slot)));
        for block in &blocks {
            let record = table.get(block.slot).expect("what was recovered is there");
            prop_assert_eq!((record.label, record.sequence), (block.label, block.sequence));
        }
        write_back(&mut table, &mut bytes, 1 << 17);
        let (again, blocks_again, rejected) = load(slots, &bytes);
        prop_assert_eq!((blocks_again, rejected.total(), again.dirty_pages()), (blocks, 0, 0));
    }
}

/// Without optimization the time would mean nothing. Every slot holds a block, in random order.
#[cfg(not(debug_assertions))]
#[test]
fn million_records_are_loaded_in_a_fraction_of_a_second() {
    let slots = 1_000_000;
    let all = (0..slots).map(|slot| {
        let sequence = u64::from(slot).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
        (slot, record(u128::from(sequence).wrapping_mul(0x1234_5678_9ABC_DEF1_2345_6789_ABCD_EF01), sequence))
    });
    let bytes = image(slots, &all.collect::<Vec<_>>());
    // The best of three: the machine may have other work.
    let took = (0..3).map(|_| {
        let start = std::time::Instant::now();
        let (_table, blocks, rejected) = load(slots, &bytes);
        let took = start.elapsed();
        assert_eq!((blocks.len(), rejected.total()), (1_000_000, 0));
        took
    });
    let took = took.min().expect("three");
    println!("a full table of {slots} slots: {took:?}");
    assert!(took.as_secs_f64() < 1.0, "{took:?}");
}

/// The same with masked names.
#[cfg(all(not(debug_assertions), feature = "encryption"))]
#[test]
fn million_masked_records_are_loaded_in_less_than_a_second() {
    use crate::disk::Key;
    use core::sync::atomic::AtomicU64;

    let (slots, key) = (1_000_000, Key::new(|key| key.fill(7)));
    let next = Arc::new(AtomicU64::new(1));
    let cipher = Cipher::new(&key, VOLUME, &crate::disk::format::NO_SALTS, next).expect("keys");
    let mut table = Table::new(VOLUME, slots, Some(Arc::new(cipher))).expect("memory");
    for slot in 0..slots {
        table.set(slot, &record(u128::from(slot) + 2, (1 << 40) + u64::from(slot)));
    }
    let superblock = superblock(slots);
    let took = (0..3).map(|_| {
        let start = std::time::Instant::now();
        let loaded =
            Table::load(&superblock, &table.bytes, superblock.shape.file_bytes, table.cipher.clone());
        let took = start.elapsed();
        let (_, blocks, rejected) = loaded.expect("memory");
        assert_eq!((blocks.len(), rejected.total()), (1_000_000, 0));
        assert_eq!(blocks[17].label, label(19));
        took
    });
    let took = took.min().expect("three");
    println!("a full table of {slots} slots with masked names: {took:?}");
    assert!(took.as_secs_f64() < 1.0, "{took:?}");
}

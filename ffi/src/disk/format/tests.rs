//! Bytes to values and back, and refused bytes.

mod document;

use super::*;
use crate::disk::recovery::{HashKey, Label, OwnerId, Rejection};
use kvstrata_core::SequenceHash;
use proptest::prelude::*;

pub(super) fn superblock() -> Superblock {
    Superblock {
        volume_id: 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210,
        set_id: 0x5e7,
        layout_fingerprint: 0x1a_1a,
        model_fingerprint: 0x30_de1,
        shape: Shape::new(1000, 5000, 512).expect("a shape"),
        seal_kind: SealKind::Checksum,
        writes: 7,
        clean: true,
        stripe_index: 1,
        stripe_count: 2,
        created_unix_seconds: 1_790_000_000,
        key_check: [0; 16],
        salts: NO_SALTS,
    }
}

pub(super) fn record() -> Record {
    Record {
        label: Label {
            hash: SequenceHash::from_u128(0x00c0_ffee),
            parent: HashKey::of(SequenceHash::from_u128(0xcafe)),
            owner: OwnerId(0x0b0e),
        },
        sequence: 42,
        seal: seal_of_payload(b"what a block holds"),
        payload_bytes: 18,
    }
}

/// Puts the right checksum over changed bytes, as only a crafted image has it.
fn resealed(mut bytes: [u8; SUPERBLOCK_BYTES]) -> [u8; SUPERBLOCK_BYTES] {
    let sum = twox_hash::XxHash3_64::oneshot(&bytes[..4088]);
    bytes[4088..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The superblock with other bytes at an offset, under the right checksum.
fn crafted(offset: usize, value: &[u8]) -> Result<Superblock, SuperblockError> {
    let mut bytes = superblock().to_bytes();
    bytes[offset..offset + value.len()].copy_from_slice(value);
    Superblock::from_bytes(&resealed(bytes))
}

fn any_shape() -> impl Strategy<Value = Shape> {
    (1..=u32::MAX, 1..=u32::MAX, 9..=12_u32)
        .prop_filter_map("a file that long", |(slots, bytes, align)| Shape::new(slots, bytes, 1 << align))
}

fn any_superblock() -> impl Strategy<Value = Superblock> {
    let numbers = (any::<[u128; 4]>(), any::<[u64; 2]>(), any::<[u8; 16]>(), any::<bool>(), any::<bool>());
    (numbers, any_shape(), 1..=u32::MAX, any::<u32>()).prop_map(
        |((ids, counts, key_check, clean, sealed), shape, stripe_count, stripe)| Superblock {
            salts: if sealed { [key_check; EPOCHS] } else { NO_SALTS },
            volume_id: ids[0],
            set_id: ids[1],
            layout_fingerprint: ids[2],
            model_fingerprint: ids[3],
            shape,
            seal_kind: if sealed { SealKind::Tag } else { SealKind::Checksum },
            writes: counts[0],
            clean,
            stripe_index: stripe % stripe_count,
            stripe_count,
            created_unix_seconds: counts[1],
            key_check: if sealed { key_check } else { [0; 16] },
        },
    )
}

fn any_record() -> impl Strategy<Value = Record> {
    let label = any::<[u8; 32]>().prop_map(Label::from_bytes);
    let first = label.clone().prop_map(|label| Label { parent: None, owner: OwnerId::NONE, ..label });
    let label = prop_oneof![label, first];
    (label, 1..=MAX_SEQUENCE, any::<[u8; 16]>(), any::<u32>())
        .prop_map(|(label, sequence, seal, payload_bytes)| Record { label, sequence, seal, payload_bytes })
}

proptest! {
    #[test]
    fn superblocks_survive_encoding(superblock in any_superblock()) {
        prop_assert_eq!(Superblock::from_bytes(&superblock.to_bytes()), Ok(superblock));
    }

    #[test]
    fn records_survive_encoding(record in any_record(), volume: u128, slot: u32) {
        let bytes = record.encode(volume, slot);
        prop_assert_eq!(Record::decode(&bytes, volume, slot), Ok(Some(record)));
        prop_assert_eq!(Record::trusted(&bytes), Some(record));
    }

    #[test]
    fn record_is_of_one_slot_of_one_volume(record in any_record(), volume: u128, other: u128, slot: u32, to: u32) {
        let bytes = record.encode(volume, slot);
        if slot != to {
            prop_assert_eq!(Record::decode(&bytes, volume, to), Err(RecordError::Checksum));
        }
        let fold = |id: u128| (id >> 64) as u64 ^ id as u64;
        if fold(other) != fold(volume) {
            prop_assert_eq!(Record::decode(&bytes, other, slot), Err(RecordError::Checksum));
        }
    }

    #[test]
    fn arbitrary_bytes_decode_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        let _ = Superblock::from_bytes(&bytes);
        if let Some(record) = bytes.first_chunk() {
            let _ = Record::decode(record, 1, 1);
        }
    }

    /// Random values in the fields from which offsets are computed, under a right checksum.
    #[test]
    fn crafted_superblock_has_offsets_that_fit(at in 80_usize..136, value: [u8; 8], bits in 0..64_u32) {
        let value = u64::from_le_bytes(value) >> bits;
        if let Ok(found) = crafted(at, &value.to_le_bytes()) {
            let shape = found.shape;
            let last = shape.offset(shape.slots - 1);
            prop_assert!(shape.table_offset + shape.table_bytes() <= shape.origin);
            prop_assert!(last + u64::from(shape.slot_bytes) <= last + shape.stride);
            prop_assert!(last + shape.stride <= shape.superblock_b());
            prop_assert_eq!(shape.slots_within(shape.file_bytes), shape.slots);
            prop_assert_eq!(shape.slots_within(last + shape.stride - 1), shape.slots - 1);
        }
    }
}

proptest! {
    // Hashing is slow without optimization.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn pieces_in_any_order_make_one_seal(
        length in 1..5 * CHUNK_BYTES,
        chunks in 1..4_usize,
        swaps: [prop::sample::Index; 4],
    ) {
        let bytes: Vec<u8> = (0..length).map(|at| (at / 300) as u8).collect();
        let piece = chunks * CHUNK_BYTES;
        let mut pieces: Vec<_> = bytes.chunks(piece).enumerate().collect();
        for (at, swap) in swaps.iter().enumerate() {
            let (a, b) = (at % pieces.len(), swap.index(pieces.len()));
            pieces.swap(a, b);
        }
        let mut sum = Sum::default();
        for (index, bytes) in pieces {
            sum.add(index * piece, bytes);
        }
        prop_assert_eq!(sum.seal(), seal_of_payload(&bytes));
        prop_assert_eq!(sum.verify(&seal_of_payload(&bytes)), Ok(()));
    }
}

#[test]
fn every_bit_of_a_superblock_counts() {
    let bytes = superblock().to_bytes();
    for bit in 0..8 * SUPERBLOCK_BYTES {
        let mut bytes = bytes;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::from_bytes(&bytes).is_err(), "bit {bit}");
    }
}

/// Also with the right checksum over bytes that no writer makes: each bit has a meaning, or is refused.
#[test]
fn resealed_superblock_ignores_no_bit() {
    let encrypted = Superblock { seal_kind: SealKind::Tag, salts: [[7; 16]; EPOCHS], ..superblock() };
    // Only one bit a byte of the salts and zeros: hashing is slow without optimization.
    for bit in (0..8 * 184).chain((8 * 184..8 * (SUPERBLOCK_BYTES - 8)).step_by(9)) {
        for superblock in [superblock(), encrypted] {
            let mut bytes = superblock.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let bytes = resealed(bytes);
            if let Ok(found) = Superblock::from_bytes(&bytes) {
                assert!(found != superblock, "bit {bit}");
                assert!(found.to_bytes() == bytes, "bit {bit}");
            }
        }
    }
}

#[test]
fn every_bit_of_a_record_counts() {
    let (volume, slot) = (superblock().volume_id, 17);
    for bytes in [record().encode(volume, slot), [0; RECORD_BYTES]] {
        for bit in 0..8 * RECORD_BYTES {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&bytes, volume, slot), Err(RecordError::Checksum), "bit {bit}");
        }
    }
    assert_eq!(Record::decode(&[0; RECORD_BYTES], volume, slot), Ok(None));
}

#[test]
fn records_of_impossible_sequence_numbers_are_refused() {
    for sequence in [0, MAX_SEQUENCE + 1, u64::MAX] {
        let bytes = Record { sequence, ..record() }.encode(1, 1);
        assert_eq!(Record::decode(&bytes, 1, 1), Err(RecordError::Sequence { sequence }));
    }
}

#[test]
fn refused_superblock_names_the_reason() {
    let field = |field| Err(SuperblockError::Field { field });
    assert_eq!(crafted(0, b"OTHERSTU"), Err(SuperblockError::Magic));
    assert_eq!(crafted(8, &[1]), Err(SuperblockError::Version { found: 1 }));
    assert_eq!(crafted(12, &[1]), field("header_bytes"));
    assert_eq!(crafted(80, &[0; 8]), field("slots"));
    assert_eq!(crafted(84, &[1]), field("slots"));
    assert_eq!(crafted(88, &[0; 8]), field("slot_bytes"));
    assert_eq!(crafted(96, &4608_u64.to_le_bytes()), field("stride"));
    assert_eq!(crafted(96, &5121_u64.to_le_bytes()), field("stride"));
    assert_eq!(crafted(104, &[0; 8]), field("table_offset"));
    assert_eq!(crafted(104, &u64::MAX.to_le_bytes()), field("table_offset"));
    // The table ends at 69632, the slots a page before the file does.
    assert_eq!(crafted(112, &65536_u64.to_le_bytes()), field("origin"));
    let short = superblock().shape.file_bytes - 4096;
    assert_eq!(crafted(120, &short.to_le_bytes()), field("file_bytes"));
    assert_eq!(crafted(112, &4096_u64.to_le_bytes()), field("origin"));
    assert_eq!(crafted(112, &(1_u64 << 63).to_le_bytes()), field("file_bytes"));
    assert_eq!(crafted(120, &8192_u64.to_le_bytes()), field("file_bytes"));
    assert_eq!(crafted(120, &(u64::MAX - 4095).to_le_bytes()), field("file_bytes"));
    for alignment in [0_u32, 256, 513, 8192, 1 << 31] {
        assert_eq!(crafted(128, &alignment.to_le_bytes()), field("alignment"), "{alignment}");
    }
    assert_eq!(crafted(132, &[3]), field("seal_kind"));
    assert_eq!(crafted(144, &[2]), field("flags"));
    assert_eq!(crafted(148, &[2]), field("stripe_index"));
    assert_eq!(crafted(152, &[0]), field("stripe_count"));
    assert_eq!(crafted(156, &[1]), field("reserved"));
    assert_eq!(crafted(183, &[1]), field("key_check"), "of a volume that is not encrypted");
    assert_eq!(crafted(2231, &[1]), field("salts"), "of a volume that is not encrypted");
    assert_eq!(crafted(2232, &[1]), field("zeros"));
    assert_eq!(crafted(4087, &[1]), field("zeros"));
    assert_eq!(
        Superblock::from_bytes(&superblock().to_bytes()[..4095]),
        Err(SuperblockError::Short { bytes: 4095 })
    );
}

#[test]
fn shapes_are_those_of_the_document() {
    let shape = Shape::new(65, 5000, 512).expect("a shape");
    assert_eq!((shape.table_offset, shape.table_bytes(), shape.origin), (4096, 8192, 12288));
    assert_eq!((shape.stride, shape.offset(64)), (5120, 12288 + 64 * 5120));
    // 12288 + 65 × 5120 = 345088 = 84.25 pages.
    assert_eq!((shape.superblock_b(), shape.file_bytes), (85 * 4096, 86 * 4096));
    for (slots, slot_bytes, alignment) in [
        (0, 1, 512),
        (1, 0, 512),
        (1, 1, 0),
        (1, 1, 256),
        (1, 1, 768),
        (1, 1, 8192),
        (u32::MAX, u32::MAX, 4096),
    ] {
        assert_eq!(Shape::new(slots, slot_bytes, alignment), None, "{slots} {slot_bytes} {alignment}");
    }
}

#[test]
fn mismatch_names_the_first_different_field() {
    let base = Superblock { seal_kind: SealKind::Tag, key_check: [1; 16], ..superblock() };
    let fits = Wanted {
        seal_kind: base.seal_kind,
        model_fingerprint: base.model_fingerprint,
        layout_fingerprint: base.layout_fingerprint,
        slots: 1000,
        slot_bytes: 5000,
        stripe_index: 1,
        stripe_count: 2,
        alignment: 512,
        key_check: base.key_check,
    };
    assert_eq!(base.mismatch(&fits), None);
    let wider = Superblock { shape: Shape::new(1000, 5000, 4096).expect("a shape"), ..base };
    assert_eq!(wider.mismatch(&fits), None, "aligned to more than is asked");

    let cases = [
        ("seal_kind", Wanted { seal_kind: SealKind::Checksum, ..fits }),
        ("model_fingerprint", Wanted { model_fingerprint: 1, ..fits }),
        ("slot_bytes", Wanted { slot_bytes: 5001, ..fits }),
        ("layout_fingerprint", Wanted { layout_fingerprint: 1, ..fits }),
        ("slots", Wanted { slots: 999, ..fits }),
        ("stripe_count", Wanted { stripe_count: 3, ..fits }),
        ("stripe_index", Wanted { stripe_index: 0, ..fits }),
        ("alignment", Wanted { alignment: 1024, ..fits }),
        ("key", Wanted { key_check: [2; 16], ..fits }),
    ];
    for (field, wanted) in cases {
        let mismatch = base.mismatch(&wanted).expect(field);
        assert_eq!(mismatch.field, field);
        assert_ne!(mismatch.found, mismatch.wanted);
    }
    let mismatch = base.mismatch(&Wanted { slots: 999, ..fits }).expect("slots");
    assert_eq!((mismatch.found.as_str(), mismatch.wanted.as_str()), ("1000", "999"));
}

/// Each kind of copy at each end.
#[test]
fn newer_intact_superblock_is_picked() {
    let good = |writes, clean| Superblock { writes, clean, ..superblock() }.to_bytes();
    let mut torn = good(9, true);
    torn[4000] ^= 1;
    let mut other = good(9, true);
    other[8] = 3;
    let other = resealed(other);
    let version = Some(SuperblockError::Version { found: 3 });
    let checksum = Some(SuperblockError::Checksum);

    let picked = |a: &[u8], b: &[u8]| {
        let picked = pick(a, b);
        (picked.best.map(|(which, superblock)| (which, superblock.writes)), picked.clean, picked.a, picked.b)
    };
    let (a, b) = (|writes| Some((Which::A, writes)), |writes| Some((Which::B, writes)));
    assert_eq!(picked(&good(7, true), &good(7, true)), (a(7), true, None, None));
    assert_eq!(picked(&good(8, false), &good(7, true)), (a(8), false, None, None));
    assert_eq!(picked(&good(7, true), &good(8, false)), (b(8), false, None, None));
    assert_eq!(picked(&good(7, true), &torn), (a(7), false, None, checksum));
    assert_eq!(picked(&torn, &good(7, true)), (b(7), false, checksum, None));
    assert_eq!(picked(&torn, &torn), (None, false, checksum, checksum));
    assert_eq!(picked(&good(7, true), &other), (None, false, None, version));
    assert_eq!(picked(&other, &good(7, true)), (None, false, version, None));
    assert_eq!(picked(&other, &torn), (None, false, version, checksum));
    assert_eq!(picked(&torn, &other), (None, false, checksum, version));
    assert_eq!(pick(&torn, &other).version(), Some(3));
    assert_eq!(pick(&other, &torn).version(), Some(3));
    assert_eq!(pick(&torn, &[]).version(), None);
    let bad = |a: &[u8], b: &[u8]| pick(a, b).bad();
    assert_eq!((bad(&torn, &[]), bad(&torn, &good(1, true)), bad(&good(1, true), &good(1, true))), (2, 1, 0));
}

#[test]
fn seal_detects_moved_lost_and_flipped_bytes() {
    let mut payload: Vec<u8> = (0..3 * CHUNK_BYTES + 100).map(|at| (at / 300) as u8).collect();
    let seal = seal_of_payload(&payload);
    assert_eq!(seal[8..], [0; 8]);
    let verdict = |payload: &[u8]| {
        let mut sum = Sum::default();
        sum.add(0, payload);
        sum.verify(&seal)
    };
    assert_eq!(verdict(&payload), Ok(()));
    assert_eq!(verdict(&payload[..3 * CHUNK_BYTES]), Err(Rejection::Payload), "without its end");
    assert_eq!(verdict(&[]), Err(Rejection::Payload));
    let (first, second) = payload.split_at_mut(CHUNK_BYTES);
    first[0] = 0xFF;
    first.swap_with_slice(&mut second[..CHUNK_BYTES]);
    assert_eq!(verdict(&payload), Err(Rejection::Payload), "flipped and moved");
    payload[CHUNK_BYTES] = 0;
    assert_eq!(verdict(&payload), Err(Rejection::Payload), "moved");
    let (first, second) = payload.split_at_mut(CHUNK_BYTES);
    first.swap_with_slice(&mut second[..CHUNK_BYTES]);
    assert_eq!(verdict(&payload), Ok(()), "back");
    // The first and last bit of each chunk, and the last bit of all.
    for bit in (0..=3).flat_map(|chunk| [chunk * CHUNK_BYTES * 8, chunk * CHUNK_BYTES * 8 + 7]) {
        payload[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(verdict(&payload), Err(Rejection::Payload), "bit {bit}");
        payload[bit / 8] ^= 1 << (bit % 8);
    }
    // Eight zeros are part of a seal.
    let mut longer = seal;
    longer[15] = 1;
    let mut sum = Sum::default();
    sum.add(0, &payload);
    assert_eq!(sum.verify(&longer), Err(Rejection::Payload));
}

//! I1 to I4 of the cipher, one by one, and the format against results of another implementation.

use super::*;
use crate::disk::recovery::{HashKey, OwnerId};
use kvstrata_core::SequenceHash;
use std::sync::Barrier;

const VOLUME: u128 = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;
const NONE: Salts = crate::disk::format::NO_SALTS;
const TEXT: &[u8] = b"sixteen tokens' worth of bytes";

/// The key whose bytes are `first`, `first` + 1 and so on.
fn key(first: u8) -> Key {
    Key::new(|key| key.iter_mut().zip(first..).for_each(|(byte, value)| *byte = value))
}

fn cipher(salts: &Salts, last_sequence: u64) -> Cipher {
    Cipher::new(&key(0), VOLUME, salts, after(last_sequence)).expect("keys")
}

fn after(last_sequence: u64) -> Arc<AtomicU64> {
    Arc::new(AtomicU64::new(last_sequence + 1))
}

fn binding() -> Binding {
    let (hash, parent) = (SequenceHash::from_u128(0xcafe), HashKey::from_number(0xbeef));
    Binding { slot: 7, label: Label { hash, parent, owner: OwnerId(0xb0e) } }
}

/// `TEXT`, sealed.
fn sealed(cipher: &Cipher) -> (Sealed, Vec<u8>) {
    let mut payload = TEXT.to_vec();
    (cipher.seal(&binding(), &mut payload).expect("sealed"), payload)
}

/// Whether it opens to `TEXT`. Otherwise the buffer must be wiped.
fn opens(cipher: &Cipher, sealed: &Sealed, binding: &Binding, payload: &[u8]) -> bool {
    let mut payload = payload.to_vec();
    let opened = cipher.open(sealed, binding, &mut payload);
    assert!(if opened { payload == TEXT } else { payload.iter().all(|byte| *byte == 0) });
    opened
}

#[test]
fn sealed_payload_opens_now_and_after_the_next_openings() {
    let cipher = cipher(&NONE, 0);
    let (sealed, payload) = sealed(&cipher);
    assert_ne!(payload, TEXT);
    assert!(opens(&cipher, &sealed, &binding(), &payload));
    let next = self::cipher(cipher.salts(), sealed.sequence);
    assert!(opens(&next, &sealed, &binding(), &payload));
    let (later, _) = self::sealed(&next);
    assert!(later.sequence > sealed.sequence, "I4");
}

#[test]
fn sealed_payload_opens_under_no_other_binding() {
    let cipher = cipher(&NONE, 0);
    let (sealed, payload) = sealed(&cipher);
    let (hash, parent) = (SequenceHash::from_u128(0xcaff), HashKey::from_number(0xbeee));
    let labelled = |change: &dyn Fn(&mut Label)| {
        let mut binding = binding();
        change(&mut binding.label);
        binding
    };
    let bindings = [
        Binding { slot: 6, ..binding() },
        Binding { slot: 7 | 1 << 31, ..binding() },
        labelled(&|label| label.hash = hash),
        labelled(&|label| label.parent = parent),
        labelled(&|label| label.parent = None),
        labelled(&|label| label.owner = OwnerId(0xb0f)),
        labelled(&|label| label.owner = OwnerId::NONE),
    ];
    for binding in &bindings {
        assert!(!opens(&cipher, &sealed, binding, &payload), "{binding:?}");
    }
    for sequence in [sealed.sequence + 1, sealed.sequence ^ 1 << COUNT_BITS, 0, u64::MAX] {
        assert!(!opens(&cipher, &Sealed { sequence, ..sealed }, &binding(), &payload), "{sequence:#x}");
    }
    assert!(!opens(&cipher, &sealed, &binding(), &payload[1..]));
    assert!(!opens(&cipher, &sealed, &binding(), &payload[..payload.len() - 1]));
    assert!(!opens(&cipher, &sealed, &binding(), &[]));
    assert!(opens(&cipher, &sealed, &binding(), &payload));
}

#[test]
fn flipped_bit_of_a_sealed_payload_is_noticed() {
    let cipher = cipher(&NONE, 0);
    let (sealed, payload) = sealed(&cipher);
    for bit in 0..8 * payload.len() {
        let mut payload = payload.clone();
        payload[bit / 8] ^= 1 << (bit % 8);
        assert!(!opens(&cipher, &sealed, &binding(), &payload), "payload, bit {bit}");
    }
    for bit in 0..8 * TAG_BYTES {
        let mut sealed = sealed;
        sealed.tag[bit / 8] ^= 1 << (bit % 8);
        assert!(!opens(&cipher, &sealed, &binding(), &payload), "tag, bit {bit}");
    }
}

#[test]
fn another_key_or_volume_or_salt_opens_nothing() {
    let cipher = cipher(&NONE, 0);
    let (sealed, payload) = sealed(&cipher);
    let opens = |key: &Key, volume, salts: &Salts| {
        let cipher = Cipher::new(key, volume, salts, after(sealed.sequence)).expect("keys");
        self::opens(&cipher, &sealed, &binding(), &payload)
    };
    assert!(opens(&key(0), VOLUME, cipher.salts()));
    assert!(!opens(&key(1), VOLUME, cipher.salts()));
    assert!(!opens(&key(0), VOLUME + 1, cipher.salts()));
    assert!(!opens(&key(0), VOLUME, &NONE));
    let mut other = *cipher.salts();
    other[1][15] ^= 1;
    assert!(!opens(&key(0), VOLUME, &other));
}

/// I1: the disk is rolled back to before the first writes, so that all sequence numbers are used again.
#[test]
fn repeated_sequence_number_has_another_key() {
    let (first, second) = (cipher(&NONE, 0), cipher(&NONE, 0));
    let ((a, one), (b, other)) = (sealed(&first), sealed(&second));
    assert_eq!(a.sequence, b.sequence);
    assert_ne!(one, other, "the same key stream twice");
    assert!(!opens(&first, &b, &binding(), &other));
    let mut masks = [[0; 32]; 2];
    assert!(first.mask(a.sequence, &mut masks[0]) && second.mask(b.sequence, &mut masks[1]));
    assert_ne!(masks[0], masks[1], "the same mask twice");
}

/// I2: whatever salts and records the disk offers, sealing uses the epoch that was drawn.
#[test]
fn salt_from_the_disk_is_never_sealed_under() {
    let forged = [[0x55; 16]; EPOCHS];
    for last_sequence in [0, 1, 126 << COUNT_BITS, 127 << COUNT_BITS, (LAST_EPOCH << COUNT_BITS) - 1] {
        let cipher = cipher(&forged, last_sequence);
        let (sealed, _) = sealed(&cipher);
        assert!(sealed.sequence > last_sequence);
        let drawn = cipher.salts()[place(sealed.sequence >> COUNT_BITS)];
        assert!(drawn != [0x55; 16] && drawn != [0; 16]);
    }
}

#[test]
fn threads_draw_distinct_sequence_numbers() {
    const THREADS: usize = 4;
    const NUMBERS: usize = 200_000;
    let cipher = cipher(&NONE, 0);
    let together = Barrier::new(THREADS);
    let numbers = || {
        together.wait();
        (0..NUMBERS).map(|_| cipher.take()).collect::<Vec<_>>()
    };
    let mut seen = vec![false; THREADS * NUMBERS];
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(numbers)).collect();
        for sequence in threads.into_iter().flat_map(|thread| thread.join().expect("no panic")) {
            let count = sequence.expect("not spent") - (1 << COUNT_BITS);
            assert!(!std::mem::replace(&mut seen[count as usize], true), "{count} twice");
        }
    });
}

/// As in a set: one counter, and blocks of all volumes in the order in which they were sealed.
#[test]
fn volumes_of_one_counter_share_epochs_and_no_number() {
    let next = after(5 << COUNT_BITS);
    let of = |volume| Cipher::new(&key(0), volume, &NONE, Arc::clone(&next)).expect("keys");
    let (one, two) = (of(VOLUME), of(VOLUME + 1));
    let sequences = [&one, &two, &two, &one].map(|cipher| sealed(cipher).0.sequence);
    assert_eq!(sequences, [0, 1, 2, 3].map(|count| 6 << COUNT_BITS | count));
}

#[test]
fn counts_and_epochs_end_without_wrapping() {
    let cipher = cipher(&NONE, 0);
    cipher.next.store((2 << COUNT_BITS) - 1, Ordering::Relaxed);
    assert_eq!(sealed(&cipher).0.sequence, (2 << COUNT_BITS) - 1);
    for _ in 0..2 {
        let refused = cipher.seal(&binding(), &mut TEXT.to_vec());
        assert_eq!(refused, Err(CipherError::SequencesSpent));
    }
    let last = LAST_EPOCH << COUNT_BITS;
    assert_eq!(last + ((1 << COUNT_BITS) - 1), MAX_SEQUENCE, "what a record can hold");
    assert_eq!(sealed(&self::cipher(&NONE, last - 1)).0.sequence, last);
    assert!(matches!(Cipher::new(&key(0), VOLUME, &NONE, after(last)), Err(CipherError::EpochsSpent)));
}

#[test]
fn oldest_salt_makes_way_for_the_newest() {
    let (mut salts, mut last) = (NONE, 0);
    let mut kept = Vec::new();
    for opening in 0..EPOCHS + 3 {
        let cipher = cipher(&salts, last);
        kept.push(sealed(&cipher));
        (salts, last) = (*cipher.salts(), kept[opening].0.sequence);
        let oldest = (opening + 1).saturating_sub(EPOCHS);
        for (age, (sealed, payload)) in kept.iter().enumerate() {
            assert_eq!(opens(&cipher, sealed, &binding(), payload), age >= oldest, "{opening}: {age}");
            let mut names = [1; 32];
            assert_eq!(cipher.mask(sealed.sequence, &mut names), age >= oldest, "{opening}: {age}");
            assert_eq!(names == [1; 32], age < oldest, "{opening}: {age}");
        }
    }
}

/// A volume that is opened and closed without a write keeps its blocks.
#[test]
fn epoch_without_records_is_numbered_again() {
    let first = cipher(&NONE, 0);
    let (sealed, payload) = sealed(&first);
    let mut salts = *first.salts();
    let mut lost = None;
    for _ in 0..2 * EPOCHS {
        let cipher = cipher(&salts, sealed.sequence);
        assert!(opens(&cipher, &sealed, &binding(), &payload));
        if let Some((lost, payload)) = lost.replace(self::sealed(&cipher)) {
            assert!(!opens(&cipher, &lost, &binding(), &payload), "a record came back");
        }
        salts = *cipher.salts();
    }
}

#[test]
fn mask_is_reversible_and_differs_by_sequence_number() {
    let cipher = cipher(&NONE, 0);
    let first = 1 << COUNT_BITS;
    let mut names = [7; 32];
    assert!(cipher.mask(first, &mut names));
    let masked = names;
    assert!(masked[..16] != [7; 16] && masked[16..] != [7; 16]);
    assert!(cipher.mask(first, &mut names));
    assert_eq!(names, [7; 32]);
    assert!(cipher.mask(first + 1, &mut names));
    assert_ne!(names, masked);
}

/// The results are of Python's `cryptography` 48 (OpenSSL's AES, HKDF and HMAC), after the
/// header's drawing.
#[test]
fn cipher_agrees_with_another_implementation() {
    let mut salts = NONE;
    salts[1] = [0xA5; 16];
    let sequence = 1 << COUNT_BITS | 5;
    let cipher = cipher(&salts, sequence);

    assert_eq!(
        number(&key_check(&key(0), VOLUME).expect("a check")),
        0x04d8_42fc_0cde_74cf_20c3_e216_ebed_eb21
    );
    assert_ne!(key_check(&key(0), VOLUME), key_check(&key(1), VOLUME));
    assert_ne!(key_check(&key(0), VOLUME), key_check(&key(0), VOLUME + 1));

    // Long enough for every loop of the implementation, and no multiple of any block.
    let payload: Vec<u8> = (0..100_003_u64).map(|i| ((i * i) >> 3) as u8).collect();
    let mut sealed_payload = payload.clone();
    let epoch = cipher.epoch(sequence).expect("has a salt");
    let tag = epoch.payload.seal(nonce(sequence), &binding().to_bytes(), &mut sealed_payload).expect("fits");
    assert_eq!(number(&tag), 0x351e_4f5e_2049_11c3_57c9_45a0_f134_d687);
    assert_eq!(number(&sealed_payload[..16]), 0xf543_dda7_9dd0_58e5_7a95_1051_775c_f22a);
    assert!(cipher.open(&Sealed { sequence, tag }, &binding(), &mut sealed_payload));
    assert!(sealed_payload == payload);

    let mut names = [0; 32];
    names.copy_from_slice(&binding().to_bytes()[..32]);
    assert!(cipher.mask(sequence, &mut names));
    assert_eq!(number(&names[..16]), 0x46bd_c8b8_a743_5e78_29c9_f92f_4672_3bb5);
    assert_eq!(number(&names[16..]), 0xf507_4504_1649_6d6b_6c38_3f06_0459_0721);
}

/// As it is printed: the first byte in front.
fn number(bytes: &[u8]) -> u128 {
    u128::from_be_bytes(bytes.try_into().expect("16 bytes"))
}

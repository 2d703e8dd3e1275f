//! Encryption at rest: a reader of the device, of a copy of the file or of an old snapshot learns nothing
//! about the payloads, the hashes that name them, or their owners.
//!
//! AES-256-GCM is safe only as long as no nonce is used twice under one key, and the same disk is the
//! only memory. Records are lost in a crash, files are rolled back to a snapshot and copied to other
//! machines, and then the sequence numbers that follow from them are taken again. So no counter that is
//! kept on the disk makes a nonce unique. Instead each opening of a volume, an *epoch*, draws a random
//! salt and has keys of its own; the counter only has to be right within one epoch.
//!
//! ```text
//!   Key (32 B) ─HKDF-SHA256, salt: volume id─► volume's secret
//!   volume's secret ─┬─"key check"──────────► superblock: key_check
//!                    ├─"payload" ‖ salt(e)──► AES-256-GCM key of epoch e
//!                    └─"names" ‖ salt(e)────► HMAC-SHA256 key of epoch e
//!
//!   sequence (62 bits)   │ epoch e, 22 bits, from 1 │ count in the epoch, 40 bits │
//!   nonce    (12 B)      │ sequence, 8 B little-endian │ zeros, 4 B │
//!   bound    (36 B)      │ hash 16 │ parent 8 │ owner 8 │ slot 4 │  the additional data of the AEAD
//!   record               hash ‖ parent ‖ owner XOR HMAC(sequence), 32 B;  seal = tag
//!   superblock           salt of epoch e at entry e mod 128; zeros: none     2048 B
//! ```
//!
//! Invariants
//! - I1: no nonce is used twice under one key. Each [`Cipher`] draws its epoch's salt at random, so its
//!   keys are its own. Among 2³² openings, of this volume, its copies and its past states, two share a
//!   salt with probability 2⁻⁶⁴. Within an epoch the count is taken atomically, once for each seal, and
//!   ends at 2⁴⁰; volumes of a set share one counter, which never goes back. This relies on nothing from
//!   the disk: a record or a superblock may be lost, torn, rolled back or forged, before or after the
//!   payload. The same holds for the masks of names. A reinitialised volume also has a new id, hence
//!   another secret.
//! - I2: payloads are sealed only under the epoch that this cipher drew; the salts from the disk serve
//!   for opening. So an attacker who writes to the disk cannot choose a key for sealing.
//! - I3: a payload is opened only as it was sealed: volume, epoch and sequence number are fixed by key
//!   and nonce; hash, parent, owner and slot are bound data; the length is checked by GCM itself. No byte
//!   of a refused payload is left in the buffer.
//! - I4: epochs ascend with time, since each is one more than the newest that any record names. So
//!   sequence numbers ascend too, and recovery orders by them, over all volumes of a set. An epoch with a
//!   number greater than the superblock's `writes` was begun by no opening, and is not counted: one
//!   forged record would exhaust the numbers. An epoch without any records left is numbered again, with
//!   another salt, and its payloads are refused.
//!
//! A salt is needed as long as a record names its epoch. Salts older than 127 openings *that wrote* are
//! lost, and their blocks are misses. So are all blocks of an epoch whose superblock never reached the
//! disk: a loss, never a leak.
//!
//! Not hidden: the number of blocks, their lengths, the order in which they were written, and whether two
//! snapshots differ in a slot. Not covered: a virtual machine that is cloned while it runs, since both go
//! on with one epoch in memory. Not wiped when a volume is closed: the keys derived from [`Key`], since
//! the library has no way to wipe them. An attacker who can write to the file can make blocks misses, and
//! undo everything written since a copy of it; neither serves a wrong byte.
//!
//! | file | contents |
//! |---|---|
//! | `key.rs` | [`Key`]: read from a file or the environment, wiped when dropped |
//! | `gcm.rs` | AES-256-GCM |

mod gcm;
mod key;
#[cfg(test)]
mod tests;

pub use key::{Key, KeyError};

use super::format::{COUNT_BITS, EPOCHS, MAX_SEQUENCE, Salts};
use super::recovery::Label;
use core::sync::atomic::{AtomicU64, Ordering};
use gcm::{Gcm, NONCE_BYTES, TAG_BYTES};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{aead, hkdf, hmac};
use std::sync::Arc;

const LAST_EPOCH: u64 = MAX_SEQUENCE >> COUNT_BITS;

const CHECK_INFO: &[u8] = b"kvstrata volume 2: key check";
const PAYLOAD_INFO: &[u8] = b"kvstrata volume 2: payload";
const NAMES_INFO: &[u8] = b"kvstrata volume 2: names";

/// Why a volume cannot be encrypted, or no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum CipherError {
    /// The system gave no random numbers, or the library refused a key.
    #[error("cannot {operation}: the system's random numbers or the cryptographic library failed; try again")]
    Refused {
        /// The operation that failed.
        operation: &'static str,
    },
    /// All 2²² epochs have been opened.
    #[error("the volume has been opened 2^22 times; reinitialize it")]
    EpochsSpent,
    /// All 2⁴⁰ sequence numbers of an epoch have been used.
    #[error("the volume has taken 2^40 writes since it was opened; open it again")]
    SequencesSpent,
    /// Longer than AES-GCM can seal.
    #[error("a payload has {bytes} bytes, but AES-GCM seals at most 64 GiB; use smaller slots")]
    TooLong {
        /// The payload's length.
        bytes: usize,
    },
}

/// The identity that a payload is sealed under, beside its sequence number. Opened under another one,
/// it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Binding {
    /// The slot's number in its volume.
    pub(super) slot: u32,
    pub(super) label: Label,
}

impl Binding {
    fn to_bytes(self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..32].copy_from_slice(&self.label.to_bytes());
        bytes[32..].copy_from_slice(&self.slot.to_le_bytes());
        bytes
    }
}

/// The parts of a sealed payload's record that sealing determines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sealed {
    pub(super) sequence: u64,
    pub(super) tag: [u8; TAG_BYTES],
}

/// The keys of one epoch.
struct Epoch {
    payload: Gcm,
    names: hmac::Key,
}

impl Epoch {
    /// None if the library refuses, which it does only for lengths that these keys do not have.
    fn new(secret: &hkdf::Prk, salt: &[u8; 16]) -> Option<Epoch> {
        let payload = secret.expand(&[PAYLOAD_INFO, salt], &aead::AES_256_GCM).ok()?.into();
        let names = secret.expand(&[NAMES_INFO, salt], hmac::HMAC_SHA256).ok()?.into();
        Some(Epoch { payload: Gcm::new(payload), names })
    }
}

/// Seals and opens the payloads of one opened volume.
pub(super) struct Cipher {
    salts: Salts,
    /// One for each entry of `salts`; None for an entry without a salt.
    epochs: Vec<Option<Epoch>>,
    /// The epoch that this cipher drew.
    newest: u64,
    /// The next sequence number, of all volumes of the set.
    next: Arc<AtomicU64>,
}

impl Cipher {
    /// Begins an epoch of the volume with this id. `salts` are its superblock's, all zeros in a new
    /// volume. `next` is greater than the number of any valid record of the set, and goes on from the
    /// epoch's start. Every copy of the superblock must soon be written with [`salts`](Cipher::salts);
    /// otherwise the sealed payloads are lost at the next opening.
    pub(super) fn new(
        key: &Key,
        volume: u128,
        salts: &Salts,
        next: Arc<AtomicU64>,
    ) -> Result<Cipher, CipherError> {
        // Relaxed: a set's volumes are opened by one thread. An earlier one has made `next` the
        // epoch's start.
        let last_sequence = next.load(Ordering::Relaxed).saturating_sub(1);
        let newest = (last_sequence >> COUNT_BITS) + 1;
        if newest > LAST_EPOCH {
            return Err(CipherError::EpochsSpent);
        }
        let mut salts = *salts;
        let drawn = &mut salts[place(newest)];
        SystemRandom::new().fill(drawn).map_err(|_| CipherError::Refused { operation: "draw a salt" })?;
        let secret = secret(key, volume);
        let epochs: Vec<_> = salts
            .iter()
            .map(|salt| if *salt == [0; 16] { None } else { Epoch::new(&secret, salt) })
            .collect();
        if epochs[place(newest)].is_none() {
            return Err(CipherError::Refused { operation: "derive a volume's keys" });
        }
        next.fetch_max(newest << COUNT_BITS, Ordering::Relaxed);
        Ok(Cipher { salts, epochs, newest, next })
    }

    /// The salts for the superblock.
    pub(super) fn salts(&self) -> &Salts {
        &self.salts
    }

    /// Encrypts a payload in place, under a sequence number of its own.
    pub(super) fn seal(&self, binding: &Binding, payload: &mut [u8]) -> Result<Sealed, CipherError> {
        let sequence = self.take().ok_or(CipherError::SequencesSpent)?;
        let epoch = self.epoch(sequence).ok_or(CipherError::SequencesSpent)?;
        let bytes = payload.len();
        let tag = epoch.payload.seal(nonce(sequence), &binding.to_bytes(), payload);
        tag.map(|tag| Sealed { sequence, tag }).ok_or(CipherError::TooLong { bytes })
    }

    /// A sequence number that nothing else has; None if all are taken.
    fn take(&self) -> Option<u64> {
        // Relaxed: the only requirement is that no two calls take the same number (I1).
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        (sequence >> COUNT_BITS == self.newest).then_some(sequence)
    }

    /// Decrypts a payload in place. False, with the payload zeroed, unless it was sealed under this
    /// identity (I3).
    pub(super) fn open(&self, sealed: &Sealed, binding: &Binding, payload: &mut [u8]) -> bool {
        let Some(epoch) = self.epoch(sealed.sequence) else {
            payload.fill(0);
            return false;
        };
        epoch.payload.open(nonce(sealed.sequence), &binding.to_bytes(), payload, sealed.tag)
    }

    /// Masks a record's label, or takes the mask off again. Returns false and leaves the label if the
    /// salt of the record's epoch is gone; then its payload cannot be opened either.
    pub(super) fn mask(&self, sequence: u64, label: &mut [u8; 32]) -> bool {
        let Some(epoch) = self.epoch(sequence) else { return false };
        let mask = hmac::sign(&epoch.names, &sequence.to_le_bytes());
        for (byte, mask) in label.iter_mut().zip(mask.as_ref()) {
            *byte ^= mask;
        }
        true
    }

    fn epoch(&self, sequence: u64) -> Option<&Epoch> {
        let epoch = sequence >> COUNT_BITS;
        let age = self.newest.checked_sub(epoch)?;
        // Newer epochs have overwritten the entries of older ones.
        if age >= EPOCHS as u64 { None } else { self.epochs[place(epoch)].as_ref() }
    }
}

/// Says nothing of the keys.
impl core::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cipher").field("newest", &self.newest).finish_non_exhaustive()
    }
}

/// The entry of an epoch's salt.
fn place(epoch: u64) -> usize {
    (epoch % EPOCHS as u64) as usize
}

fn nonce(sequence: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(&sequence.to_le_bytes());
    nonce
}

/// The secret from which all keys of a volume are derived.
fn secret(key: &Key, volume: u128) -> hkdf::Prk {
    hkdf::Salt::new(hkdf::HKDF_SHA256, &volume.to_le_bytes()).extract(key.bytes())
}

/// The key's check for the superblock: detects a wrong key before any block is refused for it, and
/// reveals nothing else about the key.
pub(super) fn key_check(key: &Key, volume: u128) -> Result<[u8; 16], CipherError> {
    struct Check;
    impl hkdf::KeyType for Check {
        fn len(&self) -> usize {
            16
        }
    }
    let mut check = [0; 16];
    let secret = secret(key, volume);
    let expanded = secret.expand(&[CHECK_INFO], Check).and_then(|okm| okm.fill(&mut check));
    expanded.map_err(|_| CipherError::Refused { operation: "derive a key's check" })?;
    Ok(check)
}

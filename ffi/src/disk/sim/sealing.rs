//! The sealed payloads of a volume with a key, and the key streams that they show.
//!
//! The oracle knows each payload and sees each sealed copy, so it can compute the key stream between
//! them. This shows that a nonce is never used twice under one key, however nonce and key were made.

use std::collections::{BTreeMap, BTreeSet};

/// The known facts about sealed payloads.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    /// The key streams of their first bytes, in all lives.
    pads: BTreeSet<u128>,
    /// For each block for copies: the buffer that it was last made from.
    pub(super) copied: BTreeMap<usize, usize>,
}

impl Sealing {
    /// Begins another life, with other blocks.
    pub(super) fn lives(&mut self) {
        self.copied.clear();
    }

    /// A nonce used twice under one key gives the same key stream twice. A plain payload
    /// gives a zero one.
    pub(super) fn check(&mut self, plain: &[u8], sealed: &[u8]) -> Result<(), String> {
        let Some((plain, sealed)) = plain.first_chunk().zip(sealed.first_chunk()) else { return Ok(()) };
        let pad = u128::from_le_bytes(*plain) ^ u128::from_le_bytes(*sealed);
        if pad == 0 || !self.pads.insert(pad) {
            return Err("A NONCE HAS COME TWICE UNDER ONE KEY".to_owned());
        }
        Ok(())
    }
}

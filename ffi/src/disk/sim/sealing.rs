//! The sealed payloads of a volume with a key, and the key streams that they show.
//!
//! The oracle knows each payload and sees each sealed copy, so it has the key stream between them. That a
//! nonce is never used twice under one key shows there, whatever made the nonce and the key.

use std::collections::{BTreeMap, BTreeSet};

/// What is known of sealed payloads.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    /// What their first bytes were XORed with, in all lives.
    pads: BTreeSet<u128>,
    /// The buffer that each block for copies was last made of.
    pub(super) copied: BTreeMap<usize, usize>,
}

impl Sealing {
    /// Another life begins, with other blocks.
    pub(super) fn lives(&mut self) {
        self.copied.clear();
    }

    /// A nonce that comes twice under one key gives the same key stream twice, and so does a plain payload.
    pub(super) fn check(&mut self, plain: &[u8], sealed: &[u8]) -> Result<(), String> {
        let Some((plain, sealed)) = plain.first_chunk().zip(sealed.first_chunk()) else { return Ok(()) };
        let pad = u128::from_le_bytes(*plain) ^ u128::from_le_bytes(*sealed);
        if pad == 0 || !self.pads.insert(pad) {
            return Err("A NONCE HAS COME TWICE UNDER ONE KEY".to_owned());
        }
        Ok(())
    }
}

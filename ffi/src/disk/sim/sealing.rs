//! Writes, and what becomes of their payloads where the volume has a key.
//!
//! The oracle knows each payload and sees each sealed copy, so it has the key stream between them. That a nonce is never
//! used twice under one key shows there, whatever made the nonce and the key.

use super::super::bounce::NoCopy;
use super::super::pending::{Cell, Pending};
use super::super::request::Request;
use super::harness::{Harness, Waiting};
use super::oracle::{BlockNumber, fill, name_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known of sealed payloads.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    /// What their first bytes were XORed with, in all lives.
    pads: BTreeSet<u128>,
    /// The buffer that each block for copies was last made of.
    copied: BTreeMap<usize, usize>,
}

impl Sealing {
    /// Another life begins, with other blocks.
    pub(super) fn lives(&mut self) {
        self.copied.clear();
    }

    /// A nonce that comes twice under one key gives the same key stream twice, and so does a plain payload.
    fn check(&mut self, plain: &[u8], sealed: &[u8]) -> Result<(), String> {
        let Some((plain, sealed)) = plain.first_chunk().zip(sealed.first_chunk()) else { return Ok(()) };
        let pad = u128::from_le_bytes(*plain) ^ u128::from_le_bytes(*sealed);
        if pad == 0 || !self.pads.insert(pad) {
            return Err("A NONCE HAS COME TWICE UNDER ONE KEY".to_owned());
        }
        Ok(())
    }
}

impl Harness {
    pub(super) fn write(&mut self, slot: u32, block: BlockNumber) -> Result<(), String> {
        let Some((buffer, mut bytes)) = self.free_buffer() else { return Ok(()) };
        fill(block, &mut bytes);
        let (bytes, name, place) = (bytes.into_read(), name_of(block), self.life.place(slot));
        let copy = match self.life.seal(slot, name, &bytes) {
            Err(NoCopy::Full) => return Ok(()),
            Err(NoCopy::Failed(cause)) => return Err(format!("sealing: {cause}")),
            Ok(copy) => copy,
        };
        let cell = Cell::new();
        let request = match copy {
            None => Request::write(bytes.into(), name, Arc::clone(&cell), place),
            Some(mut copy) => {
                self.sealing.check(&bytes, copy.bytes())?;
                let number = self.life.copy_at(copy.io_pointer().as_ptr().addr());
                self.sealing.copied.insert(number.ok_or("a copy lies in no block")?, buffer);
                Request::write_sealed(bytes, copy, name, Arc::clone(&cell), place)
            }
        };
        if self.life.inbox.try_push(request).is_ok() {
            let ticket = self.slots[slot as usize].write();
            self.begin(slot, block, Some(ticket), buffer, Waiting::Write(Pending::new(cell)));
        }
        Ok(())
    }

    /// The buffer that an address lies in, or that the copy there was made of.
    pub(super) fn buffer_of(&self, address: usize) -> Option<usize> {
        let copy = self.life.copy_at(address).and_then(|number| self.sealing.copied.get(&number).copied());
        copy.or_else(|| self.life.buffer_at(address))
    }
}

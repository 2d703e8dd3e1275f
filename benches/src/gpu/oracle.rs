//! Compares a copy's bytes with the oracle's before its time is taken: a copy of wrong bytes is not fast.

use super::Failure;
use super::memory::{Ferry, Side, byte_at};
use kvstrata_core::BlockId;
use kvstrata_core::layout::Layout;
use kvstrata_core::plan::naive;
use kvstrata_core::storage::Storage;

/// The seed with which the source was filled.
pub const SOURCE: u64 = 1;

/// The bytes that the oracle copies: addresses, ascending, and values.
pub struct Wanted(Vec<(u64, u8)>);

impl Wanted {
    /// Takes the oracle's bytes for these blocks; `base` is the address from which the source was filled
    /// as [`SOURCE`].
    #[must_use]
    pub fn new(src: (&Layout, &[BlockId]), dst: (&Layout, &[BlockId]), base: u64) -> Wanted {
        let mut wanted: Vec<(u64, u8)> = Vec::new();
        let read = |address| byte_at(SOURCE, address - base);
        naive::copy(src, dst, .., .., read, |address, byte| wanted.push((address, byte)));
        wanted.sort_unstable();
        Wanted(wanted)
    }

    /// Compares a side of the device with it.
    ///
    /// # Errors
    /// The first byte that differs; an error of the driver.
    pub fn compare(&self, ferry: &Ferry, target: &Side) -> Result<(), Failure> {
        let base = target.storage.base_address();
        self.compare_by(|address, bytes| ferry.get(&target.storage, address - base, bytes))
    }

    /// Compares any memory: `get` returns its bytes from an address on.
    ///
    /// # Errors
    /// The first byte that differs; an error of `get`.
    pub fn compare_by(
        &self,
        mut get: impl FnMut(u64, u64) -> Result<Vec<u8>, Failure>,
    ) -> Result<(), Failure> {
        for stretch in self.0.chunk_by(|(one, _), (next, _)| one + 1 == *next) {
            let first = stretch[0].0;
            let found = get(first, stretch.len() as u64)?;
            let differs = stretch.iter().zip(&found).position(|((_, wanted), found)| wanted != found);
            if let Some(at) = differs {
                let (wanted, found, address) = (stretch[at].1, found[at], first + at as u64);
                let why = format!(
                    "WRONG BYTES: at {address:#x} the oracle has {wanted:#04x}, the copy {found:#04x}"
                );
                return Err(why.into());
            }
        }
        Ok(())
    }
}

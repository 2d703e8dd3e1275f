//! The bytes of a block: a function of the seed, the block's id and the position only.
//!
//! ```text
//!   word i of block id (8 bytes, little endian) = scramble(key(seed, id) + i × ODD)
//!
//!   key and scramble are bijections
//! ```
//!
//! The comparison detects a block in another block's place, a piece shifted within its block, a stale
//! copy of another seed, a torn transfer and a flipped bit, without a record of the blocks. A length that
//! is not a multiple of 8 ends with the low bytes of its last word.
//!
//! Invariants
//! - I1: within a block all words differ, since the counter steps by an odd number and
//!   `scramble` is a bijection.
//! - I2: for one seed, equal keys mean equal ids. Two blocks share a word at given positions with
//!   probability 2⁻⁶⁴.

/// 2⁶⁴ / φ, made odd: consecutive counters differ in many bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = size_of::<u64>();
/// Words made in one step, so that the compiler keeps several multiplications in flight.
const LANES: usize = 16;
const GROUP: usize = LANES * WORD;
/// Version of the bytes. Raise it with every change of them, because volumes outlive the program.
const VERSION: u64 = 1;

/// The generator of one replay's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    seed: u64,
}

/// The difference between a block and its expected bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// Bytes that differ.
    pub bytes: u64,
    /// Offset of the first byte that differs.
    pub first: usize,
}

impl Pattern {
    /// The pattern of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Pattern {
        Pattern { seed: finish(seed.wrapping_add(STEP)) }
    }

    /// Identifies the pattern: it differs if blocks of the same id differ.
    #[must_use]
    pub const fn fingerprint(self) -> u128 {
        (VERSION as u128) << 64 | self.seed as u128
    }

    /// Fills `block` with the bytes of block `id`.
    pub fn fill(self, id: u64, block: &mut [u8]) {
        let mut counter = self.key(id);
        let (groups, tail) = block.as_chunks_mut::<GROUP>();
        for group in groups {
            for (lane, word) in group.as_chunks_mut::<WORD>().0.iter_mut().enumerate() {
                *word = word_at(counter, lane).to_le_bytes();
            }
            counter = counter.wrapping_add(STEP.wrapping_mul(LANES as u64));
        }
        for (lane, word) in tail.chunks_mut(WORD).enumerate() {
            word.copy_from_slice(&word_at(counter, lane).to_le_bytes()[..word.len()]);
        }
    }

    /// Compares a block with the bytes of `id`.
    ///
    /// # Errors
    /// [`Mismatch`], if any byte differs.
    pub fn verify(self, id: u64, block: &[u8]) -> Result<(), Mismatch> {
        let mut counter = self.key(id);
        let (groups, tail) = block.as_chunks::<GROUP>();
        for group in groups {
            let mut differences = 0;
            for (lane, word) in group.as_chunks::<WORD>().0.iter().enumerate() {
                differences |= u64::from_le_bytes(*word) ^ word_at(counter, lane);
            }
            if differences != 0 {
                return Err(self.compare(id, block));
            }
            counter = counter.wrapping_add(STEP.wrapping_mul(LANES as u64));
        }
        let mut tail = tail.chunks(WORD).enumerate();
        match tail.all(|(lane, word)| *word == word_at(counter, lane).to_le_bytes()[..word.len()]) {
            true => Ok(()),
            false => Err(self.compare(id, block)),
        }
    }

    /// The slow comparison, once a byte is known to differ.
    #[cold]
    fn compare(self, id: u64, block: &[u8]) -> Mismatch {
        let mut mismatch = Mismatch { bytes: 0, first: block.len() };
        let key = self.key(id);
        for (offset, byte) in block.iter().enumerate() {
            let word = scramble(key.wrapping_add(STEP.wrapping_mul((offset / WORD) as u64)));
            if *byte != word.to_le_bytes()[offset % WORD] {
                mismatch.bytes += 1;
                mismatch.first = mismatch.first.min(offset);
            }
        }
        mismatch
    }

    fn key(self, id: u64) -> u64 {
        // A bijection of `id` for each seed (I2).
        finish(finish(id.wrapping_mul(STEP)) ^ self.seed)
    }
}

#[inline]
fn word_at(counter: u64, lane: usize) -> u64 {
    scramble(counter.wrapping_add(STEP.wrapping_mul(lane as u64)))
}

/// One multiplication between two shifts; a bijection. It need not be random, as long as no
/// wrong block matches by chance.
#[inline]
const fn scramble(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 29)
}

/// The finaliser of splitmix64; a bijection.
pub(super) const fn finish(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(seed: u64, id: u64, bytes: usize) -> Vec<u8> {
        let mut block = vec![0; bytes];
        Pattern::new(seed).fill(id, &mut block);
        block
    }

    #[test]
    fn filled_block_verifies_at_every_length() {
        for bytes in (0..200).chain([4096, 65_536, 65_537]) {
            assert_eq!(Pattern::new(3).verify(9, &block(3, 9, bytes)), Ok(()), "{bytes} bytes");
            let whole = block(3, 9, 65_537);
            assert_eq!(block(3, 9, bytes), whole[..bytes], "a shorter block is a prefix");
        }
    }

    #[test]
    fn bytes_of_a_version_stay() {
        let filled = u128::from_le_bytes(block(7, 42, 16).try_into().expect("16 bytes"));
        assert_eq!(
            (VERSION, filled),
            (1, 0x4947_200e_0eeb_0262_1475_f6ba_5ac5_3240),
            "other bytes: raise VERSION"
        );
        assert_ne!(Pattern::new(7).fingerprint(), Pattern::new(8).fingerprint());
    }

    #[test]
    fn flipped_bit_is_found_at_its_offset() {
        let mut block = block(1, 77, 331);
        for offset in 0..block.len() {
            for bit in 0..8 {
                block[offset] ^= 1 << bit;
                let expected = Mismatch { bytes: 1, first: offset };
                assert_eq!(Pattern::new(1).verify(77, &block), Err(expected));
                block[offset] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn misplaced_bytes_are_found() {
        let pattern = Pattern::new(5);
        let good = block(5, 1000, 4096);
        for other in [0, 999, 1001, u64::MAX] {
            assert!(pattern.verify(other, &good).is_err(), "another id");
        }
        assert!(Pattern::new(6).verify(1000, &good).is_err(), "another seed");
        for shift in 1..512 {
            let mut shifted = good.clone();
            shifted.rotate_left(shift * 8);
            let Mismatch { bytes, first } = pattern.verify(1000, &shifted).expect_err("shifted");
            assert!(bytes > 3000 && first < 8, "{shift} words: {bytes} bytes from {first}");
        }
        let torn = [&good[..2048], &block(5, 1001, 4096)[2048..]].concat();
        assert_eq!(pattern.verify(1000, &torn).expect_err("torn").first, 2048);
        assert!(pattern.verify(1000, &[0; 4096]).is_err());
    }

    #[test]
    fn neighbouring_ids_share_no_word() {
        let mut words = std::collections::HashSet::new();
        for id in 0..64 {
            for word in block(0, id, 4096).as_chunks::<WORD>().0 {
                assert!(words.insert(*word));
            }
        }
    }
}

//! The chain by AES-NI, with the words of four blocks under way while the links of the four before are made.
//!
//! ```text
//!   words of blocks 4 … 7      w0 ×4      w1 ×4      w2 ×4      w3 ×4  independent: 1 to 2 rounds a cycle
//!   links of blocks 0 … 3       h(0)       h(1)       h(2)       h(3)  serial: 10 rounds, 3 or 4 cycles each
//! ```
//!
//! The serial links are the limit: 40 cycles a block where `aesenc` takes 4. To keep everything else off that
//! path, a state waits with the next key addition in it already (`state ⊕ k0`), and the last round of a link
//! adds the state of the next block as if it were part of the round key. So a link's output is the next
//! link's input, and the hash itself comes by an xor beside the path.

use super::{A_WORD, word};
use crate::hash::SequenceHash;
use crate::hash::Token;
use alloc::vec::Vec;
use core::arch::x86_64::{
    __m128i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aeskeygenassist_si128, _mm_cvtsi128_si64,
    _mm_set_epi64x, _mm_setzero_si128, _mm_shuffle_epi32, _mm_slli_si128, _mm_unpackhi_epi64, _mm_xor_si128,
};

cpufeatures::new!(aes_ni, "aes");

/// Blocks side by side. Four leave the registers that the links need; eight spill, and are slower.
const LANES: usize = 4;

/// The eleven round keys of AES-128, and the proof that this processor has AES-NI.
pub(super) struct Rounds([u128; 11]);

impl Rounds {
    /// The key's schedule (FIPS 197, section 5.2); `None` where the processor lacks AES-NI.
    pub(super) fn new(key: [u8; 16]) -> Option<Rounds> {
        aes_ni::get().then(|| {
            // SAFETY: `aes_ni` has just said that the processor has the feature `aes`, which implies `sse2`.
            Rounds(unsafe { expand(u128::from_le_bytes(key)) })
        })
    }

    /// Appends h(i) for each whole block. `start` is AES of the first block of these messages.
    pub(super) fn chain(
        &self,
        start: u128,
        parent: SequenceHash,
        tokens: &[Token],
        block_size: usize,
        out: &mut Vec<SequenceHash>,
    ) {
        // SAFETY: a `Rounds` is only made by `new`, where the processor has the feature `aes`.
        unsafe { chain(&self.0, start, parent, tokens, block_size, out) }
    }
}

#[target_feature(enable = "aes,sse2")]
#[inline]
fn of(word: u128) -> __m128i {
    _mm_set_epi64x((word >> 64) as i64, word as i64)
}

#[target_feature(enable = "aes,sse2")]
#[inline]
fn to(word: __m128i) -> u128 {
    let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(word, word)) as u64;
    u128::from(high) << 64 | u128::from(_mm_cvtsi128_si64(word) as u64)
}

/// One step of the key schedule: `assist` holds RotWord(SubWord(last column)) ⊕ Rcon in its upper column.
#[target_feature(enable = "aes,sse2")]
fn step(key: __m128i, assist: __m128i) -> __m128i {
    let mut key = _mm_xor_si128(key, _mm_slli_si128::<4>(key));
    key = _mm_xor_si128(key, _mm_slli_si128::<8>(key));
    _mm_xor_si128(key, _mm_shuffle_epi32::<0xff>(assist))
}

#[target_feature(enable = "aes,sse2")]
fn expand(key: u128) -> [u128; 11] {
    let mut key = of(key);
    let mut keys = [to(key); 11];
    macro_rules! round {
        ($($nth:literal: $rcon:literal),*) => { $(
            key = step(key, _mm_aeskeygenassist_si128::<$rcon>(key));
            keys[$nth] = to(key);
        )* };
    }
    round!(1: 0x01, 2: 0x02, 3: 0x04, 4: 0x08, 5: 0x10, 6: 0x20, 7: 0x40, 8: 0x80, 9: 0x1b, 10: 0x36);
    keys
}

/// Word `nth` of a block, the last one padded with zeros.
#[target_feature(enable = "aes,sse2")]
#[inline]
fn load(block: &[Token], nth: usize) -> __m128i {
    let at = nth * A_WORD;
    match block.get(at..at + A_WORD) {
        Some(&[a, b, c, d]) => {
            let pair = |low: Token, high: Token| (u64::from(high) << 32 | u64::from(low)) as i64;
            _mm_set_epi64x(pair(c, d), pair(a, b))
        }
        _ => of(word(&block[at..])),
    }
}

/// Rounds 1 to 9.
#[target_feature(enable = "aes,sse2")]
#[inline]
fn middle(keys: &[__m128i; 11], mut state: __m128i) -> __m128i {
    for key in &keys[1..10] {
        state = _mm_aesenc_si128(state, *key);
    }
    state
}

#[target_feature(enable = "aes,sse2")]
fn chain(
    keys: &[u128; 11],
    start: u128,
    parent: SequenceHash,
    tokens: &[Token],
    block_size: usize,
    out: &mut Vec<SequenceHash>,
) {
    let mut round_keys = [_mm_setzero_si128(); 11];
    for (to, key) in round_keys.iter_mut().zip(keys) {
        *to = of(*key);
    }
    let keys = &round_keys;
    // The last round of a word and the first key addition of the next one.
    let between = _mm_xor_si128(keys[10], keys[0]);
    let start = _mm_xor_si128(of(start), keys[0]);
    let words = block_size.div_ceil(A_WORD);

    let mut links =
        Links { waiting: [_mm_setzero_si128(); LANES], count: 0, done: 0, last: of(parent.to_u128()) };
    let whole = tokens.len() / block_size * block_size;
    for group in tokens[..whole].chunks(LANES.saturating_mul(block_size)) {
        let count = group.len() / block_size;
        // A group that is not full repeats its last block in the lanes that are left over.
        let block = |lane: usize| {
            let from = lane.min(count - 1) * block_size;
            &group[from..from + block_size]
        };
        let blocks = [block(0), block(1), block(2), block(3)];
        let mut states = [start; LANES];
        for nth in 0..words {
            for (state, block) in states.iter_mut().zip(&blocks) {
                *state = _mm_xor_si128(*state, load(block, nth));
            }
            for key in &keys[1..10] {
                for state in &mut states {
                    *state = _mm_aesenc_si128(*state, *key);
                }
            }
            for state in &mut states {
                *state = _mm_aesenclast_si128(*state, between);
            }
            while links.done * words < links.count * (nth + 1) {
                out.push(links.next(keys));
            }
        }
        links.begin(states, count);
    }
    while links.done < links.count {
        out.push(links.next(keys));
    }
}

/// The serial part: states of whole blocks, with the next key addition in them, to be linked in order.
struct Links {
    waiting: [__m128i; LANES],
    count: usize,
    done: usize,
    /// The input of the next link; where none is left, the last hash.
    last: __m128i,
}

impl Links {
    #[target_feature(enable = "aes,sse2")]
    #[inline]
    fn begin(&mut self, waiting: [__m128i; LANES], count: usize) {
        self.last = _mm_xor_si128(self.last, waiting[0]);
        (self.waiting, self.count, self.done) = (waiting, count, 0);
    }

    #[target_feature(enable = "aes,sse2")]
    #[inline]
    fn next(&mut self, keys: &[__m128i; 11]) -> SequenceHash {
        self.done += 1;
        let state = middle(keys, self.last);
        let behind = if self.done < self.count { self.waiting[self.done] } else { _mm_setzero_si128() };
        self.last = _mm_aesenclast_si128(state, _mm_xor_si128(keys[10], behind));
        SequenceHash::from_u128(to(_mm_xor_si128(self.last, behind)))
    }
}

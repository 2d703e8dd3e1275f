//! The chain by the crate `aes`: constant-time on every processor, by its AES instructions
//! where the crate knows them.

use super::{A_WORD, word};
use crate::hash::SequenceHash;
use crate::hash::Token;
use aes::cipher::BlockCipherEncrypt;
use aes::{Aes128, Block};
use alloc::vec::Vec;

/// Blocks side by side, as many as the crate's bitsliced code does at once.
const LANES: usize = 8;

/// Appends h(i) for each whole block. `start` is AES of the first block of these messages.
pub(super) fn chain(
    aes: &Aes128,
    start: u128,
    mut parent: SequenceHash,
    tokens: &[Token],
    block_size: usize,
    out: &mut Vec<SequenceHash>,
) {
    let whole = tokens.len() / block_size * block_size;
    for group in tokens[..whole].chunks(LANES.saturating_mul(block_size)) {
        let lanes = group.len() / block_size;
        let mut states = [Block::from(start.to_le_bytes()); LANES];
        for at in (0..block_size).step_by(A_WORD) {
            let end = block_size.min(at + A_WORD);
            for (state, block) in states.iter_mut().zip(group.chunks_exact(block_size)) {
                xor(state, word(&block[at..end]));
            }
            aes.encrypt_blocks(&mut states[..lanes]);
        }
        for state in &mut states[..lanes] {
            xor(state, parent.to_u128());
            aes.encrypt_block(state);
            parent = SequenceHash::from_bytes((*state).into());
            out.push(parent);
        }
    }
}

fn xor(state: &mut Block, word: u128) {
    *state = (u128::from_le_bytes((*state).into()) ^ word).to_le_bytes().into();
}

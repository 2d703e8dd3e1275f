//! The expected bytes of both memories, and the layers of host blocks that have a valid sum.

use crate::common::Random;
use crate::ground::{Field, Move};
use kvstrata::transfer::Failure;
use std::ops::Range;
use twox_hash::XxHash3_64;

pub struct Oracle {
    pub device: Vec<Vec<u8>>,
    pub host: Vec<Vec<u8>>,
    /// By block and layer.
    pub sealed: Vec<Vec<bool>>,
}

fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(random.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

impl Oracle {
    /// Fills both memories with bytes of this seed.
    pub fn fill(field: &Field, seed: u64) -> Oracle {
        let mut random = Random(seed);
        let len = field.memory.arena().block_bytes();
        let device: Vec<_> = (0..field.blocks).map(|_| bytes(&mut random, len)).collect();
        let host: Vec<_> = (0..field.blocks).map(|_| bytes(&mut random, len)).collect();
        for block in 0..field.blocks {
            field.device.poke(block, &device[block as usize]);
            field.memory.write(block).expect("free").copy_from_slice(&host[block as usize]);
        }
        let sealed = vec![vec![false; field.layers().len()]; field.blocks as usize];
        Oracle { device, host, sealed }
    }

    /// Notes copies that have ended. The target of a failed copy is unspecified, and read as it is.
    pub fn note(&mut self, field: &Field, moves: &[Move], outcomes: &[Result<(), Failure>]) {
        for (one, outcome) in moves.iter().zip(outcomes) {
            let (device, host) = (one.device as usize, one.host as usize);
            for layer in one.layers.clone() {
                let at = field.memory.layer(layer).expect("a layer");
                let (device, host) = (&mut self.device[device], &mut self.host[host]);
                let (to, from) = if one.up { (device, host) } else { (host, device) };
                if outcome.is_ok() {
                    to[at.clone()].copy_from_slice(&from[at]);
                } else {
                    let found =
                        if one.up { field.device.peek(one.device) } else { field.peek_host(one.host) };
                    to[at.clone()].copy_from_slice(&found[at]);
                }
                if !one.up {
                    self.sealed[one.host as usize][layer as usize] = outcome.is_ok();
                }
            }
        }
    }

    /// Notes blocks that were overwritten.
    pub fn zeroed(&mut self, field: &Field, blocks: &[(u32, Range<u32>)], outcomes: &[Result<(), Failure>]) {
        for ((block, layers), outcome) in blocks.iter().zip(outcomes) {
            for layer in layers.clone() {
                let at = field.memory.layer(layer).expect("a layer");
                match outcome {
                    Ok(()) => self.device[*block as usize][at].fill(0),
                    Err(_) => {
                        let found = field.device.peek(*block);
                        self.device[*block as usize][at.clone()].copy_from_slice(&found[at]);
                    }
                }
            }
        }
    }

    /// Checks that all bytes are as expected, and that each valid sum is its layer's.
    pub fn check(&self, field: &Field) {
        for block in 0..field.blocks {
            let (device, host) = (&self.device[block as usize], &self.host[block as usize]);
            assert!(field.device.peek(block) == *device, "block {block} of the device");
            let held = field.memory.write(block).expect("nobody uses it").into_read();
            assert!(*held == **host, "block {block} of the host");
            for layer in field.layers().filter(|layer| self.sealed[block as usize][*layer as usize]) {
                let sum = XxHash3_64::oneshot(&host[field.memory.layer(layer).expect("a layer")]);
                assert!(field.memory.matches(&held, layer, sum), "the sum of layer {layer} of block {block}");
            }
        }
    }

    /// Whether an onboard of these layers may be told to verify.
    pub fn is_sealed(&self, one: &Move) -> bool {
        one.layers.clone().all(|layer| self.sealed[one.host as usize][layer as usize])
    }
}

//! Tests of volumes: one contract for every backend, then the promises of each part.

mod contract;
#[cfg(target_os = "linux")]
mod device;
#[cfg(feature = "encryption")]
mod encrypted;
mod faults;
mod files;
mod forked;
mod gate;
mod given;
mod lengths;
mod life;
mod order;
mod recovery;
mod sets;
mod system;
#[cfg(target_os = "linux")]
mod through;

use super::backend::Backend;
use super::choice::{Built, build};
use super::error::VolumeError;
use super::options::VolumeOptions;
use super::recovery::{Name, OwnerId};
use super::request::Urgency;
use super::ring::faulty::{Fault, FaultyRing};
use super::volume::Volume;
use crate::arena::HostArena;
use kvstrata_core::SequenceHash;
use std::sync::Arc;
use tempfile::TempDir;

/// Prints why a test is skipped, or fails if `KVSTRATA_REQUIRE` names the missing part.
fn skip(what: &str, why: &dyn core::fmt::Display) {
    let required = std::env::var("KVSTRATA_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == what), "{what} is required: {why}");
    println!("SKIP {what}: {why}");
}

/// The volume; None with a SKIP line if the machine lacks a requirement of the backend.
fn volume_or_skip(made: Result<Volume, VolumeError>) -> Option<Volume> {
    match made {
        Ok(volume) => Some(volume),
        Err(error @ VolumeError::NoUring { .. }) => {
            skip("io_uring", &error);
            None
        }
        Err(error @ VolumeError::NoDirect { .. }) => {
            skip("o_direct", &error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn open(options: VolumeOptions) -> Result<Volume, VolumeError> {
    Volume::open(options).map(|(volume, _)| volume)
}

fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn options(dir: &TempDir, slots: u32, slot_bytes: usize) -> VolumeOptions {
    VolumeOptions::new(dir.path().join("volume"), slots, slot_bytes)
}

/// A volume over a ring with faults on purpose.
fn faulty(
    options: VolumeOptions,
    plan: impl FnMut(u64, &super::ring::Op<'_>) -> Fault + Send + 'static,
) -> Result<Volume, VolumeError> {
    let opened = Volume::open_with(options, |parts| {
        let built = build(parts)?;
        Ok(Built { ring: Box::new(FaultyRing::new(built.ring, plan)), ..built })
    });
    opened.map(|(volume, _)| volume)
}

/// The name of a slot's block in a round.
fn name(slot: u32, round: u32) -> Name {
    let hash = SequenceHash::from_u128((u128::from(slot) << 64) | (u128::from(round) + 1));
    Name { hash, parent: None, owner: OwnerId(u64::from(slot % 3)) }
}

/// Bytes that only the slot and the round determine, different at every position of a block.
fn pattern(slot: u32, round: u32, bytes: &mut [u8]) {
    let mut state = (u64::from(slot) << 32 | u64::from(round)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for byte in bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
}

fn assert_pattern(slot: u32, round: u32, bytes: &[u8]) {
    let mut expected = vec![0; bytes.len()];
    pattern(slot, round, &mut expected);
    assert!(expected == bytes, "slot {slot}, round {round}: other bytes came back");
}

fn write_pattern(volume: &Volume, arena: &Arc<HostArena>, block: usize, slot: u32, round: u32) {
    let mut buffer = arena.write(block).expect("free");
    pattern(slot, round, &mut buffer);
    drop(volume.write(slot, name(slot, round), buffer.into_read()).wait().expect("written"));
}

fn check_pattern(volume: &Volume, arena: &Arc<HostArena>, block: usize, slot: u32, round: u32) {
    let mut buffer = arena.write(block).expect("free");
    buffer.fill(0xEE);
    let buffer = volume.read(slot, name(slot, round).hash, Urgency::Ordinary, buffer).wait().expect("read");
    assert_pattern(slot, round, &buffer);
}

//! The cipher's stand-in without the feature `encryption`: the same names, but types without values, so
//! that the rest of the volume needs no distinction.

use super::format::Salts;
use super::recovery::Label;
use core::sync::atomic::AtomicU64;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
pub(super) enum Key {}

#[derive(Debug)]
pub(super) enum Cipher {}

#[derive(Debug, thiserror::Error)]
#[error("kvstrata was built without the feature `encryption`")]
pub(super) struct CipherError;

#[expect(dead_code, reason = "a stand-in that is never read")]
#[derive(Debug)]
pub(super) struct Binding {
    pub(super) slot: u32,
    pub(super) label: Label,
}

#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) sequence: u64,
    pub(super) tag: [u8; 16],
}

pub(super) fn key_check(key: &Key, _volume: u128) -> Result<[u8; 16], CipherError> {
    match *key {}
}

impl Cipher {
    pub(super) fn new(
        key: &Key,
        _volume: u128,
        _salts: &Salts,
        _next: Arc<AtomicU64>,
    ) -> Result<Cipher, CipherError> {
        match *key {}
    }

    pub(super) fn salts(&self) -> &Salts {
        match *self {}
    }

    pub(super) fn seal(&self, _binding: &Binding, _payload: &mut [u8]) -> Result<Sealed, CipherError> {
        match *self {}
    }

    pub(super) fn open(&self, _sealed: &Sealed, _binding: &Binding, _payload: &mut [u8]) -> bool {
        match *self {}
    }

    pub(super) fn mask(&self, _sequence: u64, _label: &mut [u8; 32]) -> bool {
        match *self {}
    }
}

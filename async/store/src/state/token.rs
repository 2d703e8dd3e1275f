//! Tokens: the numbers by which movers answer.
//!
//! A key is used again only after its transfer has ended, and each token is answered once. So a token needs
//! no serial number.

use crate::state::{ReadKey, WriteKey};

/// A copy to a batch's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyKey(pub(crate) usize);

/// A transfer that a mover answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferId {
    Read(ReadKey),
    Write(WriteKey),
    Copy(CopyKey),
}

impl TransferId {
    pub(crate) fn token(self) -> u64 {
        let (kind, key) = match self {
            TransferId::Read(key) => (0, key.0),
            TransferId::Write(key) => (1, key.0),
            TransferId::Copy(key) => (2, key.0),
        };
        kind << 62 | key as u64
    }

    pub(crate) fn of(token: u64) -> TransferId {
        let key = (token & (u64::MAX >> 2)) as usize;
        match token >> 62 {
            0 => TransferId::Read(ReadKey(key)),
            1 => TransferId::Write(WriteKey(key)),
            _ => TransferId::Copy(CopyKey(key)),
        }
    }
}

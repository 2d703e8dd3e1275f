//! Pieces: transfers that are with the ring, or wait to be given to it again.
//!
//! ```text
//!   piece ─┬─ part: request 7, bytes 0 … 128 KiB  ┐ of slots that are adjacent in the file:
//!          └─ part: request 9, bytes 0 … 128 KiB  ┘ one request to the kernel
//! ```
//!
//! Invariants
//! - I1: a piece's list of buffers neither changes nor moves from `Ring::push` to its completion.
//! - I2: there are at most `depth` pieces, so that tokens are small numbers and lists are reused.

use super::super::ring::{Action, Buffer};

/// A stretch of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// The request's key in the engine.
    pub(super) request: usize,
    /// Where in the request the part started.
    pub(super) start: usize,
    /// Where the rest of the part starts.
    pub(super) offset: usize,
    /// The length of the rest.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct Piece {
    pub(super) action: Action,
    pub(super) file_offset: u64,
    pub(super) bytes: usize,
    pub(super) parts: Vec<Part>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) retries: u32,
    /// Set for pieces of urgent reads.
    pub(super) urgent: bool,
}

impl Piece {
    /// Continues behind the first `moved` bytes, fewer than there are. Completed parts go to `through`.
    pub(super) fn advance(&mut self, mut moved: usize, through: &mut Vec<Part>) {
        debug_assert!(moved < self.bytes);
        self.file_offset += moved as u64;
        self.bytes -= moved;
        let whole = self.parts.iter().take_while(|part| {
            let whole = part.bytes <= moved;
            moved -= if whole { part.bytes } else { 0 };
            whole
        });
        let whole = whole.count();
        through.extend(self.parts.drain(..whole));
        if let Some(first) = self.parts.first_mut() {
            first.offset += moved;
            first.bytes -= moved;
        }
    }
}

/// The pieces, by token.
#[derive(Debug)]
pub(super) struct Pieces {
    all: Vec<Piece>,
    idle: Vec<u32>,
    in_use: Vec<bool>,
}

impl Pieces {
    pub(super) fn new(depth: usize) -> Pieces {
        let piece = || Piece {
            action: Action::Read,
            file_offset: 0,
            bytes: 0,
            parts: Vec::new(),
            buffers: Vec::new(),
            retries: 0,
            urgent: false,
        };
        Pieces {
            all: (0..depth).map(|_| piece()).collect(),
            // The rings' depth is at most 4096.
            idle: (0..depth as u32).rev().collect(),
            in_use: vec![false; depth],
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.idle.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.all.len() - self.idle.len()
    }

    /// Takes an empty piece, if one is idle.
    pub(super) fn take(&mut self, action: Action, file_offset: u64, urgent: bool) -> Option<u32> {
        let token = self.idle.pop()?;
        self.in_use[token as usize] = true;
        let piece = &mut self.all[token as usize];
        (piece.action, piece.file_offset, piece.bytes, piece.retries) = (action, file_offset, 0, 0);
        piece.urgent = urgent;
        debug_assert!(piece.parts.is_empty());
        Some(token)
    }

    /// The piece in use with this token, if there is one.
    pub(super) fn get_mut(&mut self, token: u32) -> Option<&mut Piece> {
        match self.in_use.get(token as usize) {
            Some(true) => self.all.get_mut(token as usize),
            _ => None,
        }
    }

    /// Frees an ended piece; its parts go to `through`.
    pub(super) fn end(&mut self, token: u32, through: &mut Vec<Part>) {
        if let Some(piece) = self.get_mut(token) {
            through.append(&mut piece.parts);
            self.in_use[token as usize] = false;
            self.idle.push(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(request: usize, start: usize, bytes: usize) -> Part {
        Part { request, start, offset: start, bytes }
    }

    #[test]
    fn short_transfer_ends_the_parts_that_it_covers() {
        let mut pieces = Pieces::new(1);
        let token = pieces.take(Action::Read, 1000, false).expect("room");
        assert!(pieces.is_full() && pieces.take(Action::Read, 0, false).is_none());
        let piece = pieces.get_mut(token).expect("in use");
        piece.parts.extend([part(1, 0, 100), part(2, 0, 100), part(3, 50, 100)]);
        piece.bytes = 300;
        let mut through = Vec::new();
        piece.advance(150, &mut through);
        assert_eq!((through.as_slice(), piece.file_offset, piece.bytes), (&[part(1, 0, 100)][..], 1150, 150));
        assert_eq!(piece.parts[0], Part { request: 2, start: 0, offset: 50, bytes: 50 });
        piece.advance(50, &mut through);
        assert_eq!(through[1], Part { request: 2, start: 0, offset: 50, bytes: 50 });
        assert_eq!(piece.parts, [part(3, 50, 100)]);
        pieces.end(token, &mut through);
        assert_eq!((through.len(), pieces.len()), (3, 0));
        assert!(pieces.get_mut(token).is_none() && pieces.get_mut(9).is_none());
        pieces.end(token, &mut through);
        assert_eq!((through.len(), pieces.len()), (3, 0), "a stray completion changes nothing");
    }
}

//! Takes the answers of movers.

use crate::engine::inner::Inner;
use crate::engine::notices::About;
use crate::state::{Down, Traffic, TransferId};
use crate::tier::Tier;
use crate::transfer::{Cause, Failure, HostSide, Landed, Path, Token};

impl Traffic {
    pub(crate) fn land(&mut self, inner: &Inner, landed: Landed) {
        match landed {
            Landed::Copies(mut list) => {
                for copy in list.drain(..) {
                    let path = if copy.host.is_up() { Path::HostToDevice } else { Path::DeviceToHost };
                    let (token, outcome, layers) = (copy.token, copy.outcome, copy.layers.clone());
                    let kept = matches!(copy.host, HostSide::Kept { .. });
                    // The memory is released before the consequences are decided.
                    drop(copy);
                    if kept {
                        self.quarantine_transfer(inner, token);
                    }
                    self.land_one(inner, token, path, layers, outcome);
                }
                self.scratch.return_copies(list);
            }
            Landed::Read(token, outcome) => {
                let from = match TransferId::of(token) {
                    TransferId::Up(key) => self.ups.get(key).map(|up| up.source().tier()),
                    TransferId::Down(_) => None,
                };
                let Some(Tier::Below(number)) = from else { return };
                self.land_one(inner, token, Path::FromBelow(number), 0..u32::MAX, outcome.map(drop));
            }
            Landed::Write(token, outcome) => {
                let TransferId::Down(key) = TransferId::of(token) else { return };
                let Some(number) = self.downs.get(key).map(Down::below) else { return };
                let path = Path::ToBelow(number);
                self.ended_below(inner, key, path);
                self.land_one(inner, token, path, 0..u32::MAX, outcome.map(drop));
            }
        }
    }

    fn land_one(
        &mut self,
        inner: &Inner,
        token: Token,
        path: Path,
        layers: std::ops::Range<u32>,
        outcome: Result<(), Failure>,
    ) {
        let id = TransferId::of(token);
        let group = match id {
            TransferId::Up(key) => self.ups.get(key).map(|up| up.group()),
            TransferId::Down(key) => self.downs.get(key).map(|down| down.group()),
        };
        let Some(group) = group else { return };
        self.transfer_ended(inner, id, path, inner.group(group).bytes_of(&layers), outcome);
        match id {
            TransferId::Up(key) => self.land_up(inner, key, path, outcome),
            TransferId::Down(key) => self.land_down(inner, key, path, outcome),
        }
    }

    /// Ends a transfer at its turn, since something else has its memory. Waiters for its room are looked
    /// at again.
    pub(crate) fn transfer_busy(
        &mut self,
        inner: &Inner,
        id: TransferId,
        path: Path,
        bytes: u64,
        whose: About,
    ) {
        self.transfer_ended(inner, id, path, bytes, Err(Failure::of(Cause::Busy)));
        inner.counts.failed(path, Cause::Busy, whose);
        self.again = true;
    }

    fn transfer_ended(
        &mut self,
        inner: &Inner,
        id: TransferId,
        path: Path,
        bytes: u64,
        outcome: Result<(), Failure>,
    ) {
        self.queues.ended(path, bytes);
        inner.counts.moved(path, bytes, outcome);
        self.moved(inner, path, if outcome.is_ok() { bytes } else { 0 });
        let now = self.when(inner);
        let started = self.since(id).map(std::mem::take).unwrap_or_default();
        inner.watch.ended(path, started, now);
    }

    /// Quarantines both blocks of a transfer: a failed device keeps its memory.
    fn quarantine_transfer(&mut self, inner: &Inner, token: Token) {
        match TransferId::of(token) {
            TransferId::Up(key) => self.quarantine_up(inner, key),
            TransferId::Down(key) => self.quarantine_down(inner, key),
        }
    }

    /// Resumes a transfer after its pause.
    pub(crate) fn resume(&mut self, inner: &Inner, transfer: TransferId, serial: u64) {
        match transfer {
            TransferId::Up(key) => self.resume_up(inner, key, serial),
            TransferId::Down(key) => self.resume_down(inner, key, serial),
        }
    }
}

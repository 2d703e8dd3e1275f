//! Stores: into host memory by a copy, to the tier below by a write.
//!
//! ```text
//!   a tier has it ──► present
//!   write under way ──► join it
//!   else ─┬─► copy to a host block, registered: found from now on ──► write it to the tier below
//!         ├─► write straight from the lent memory
//!         └─► copy to a staging block ──► write that
//! ```

use crate::copier::{Copied, Copying};
use crate::engine::inner::Inner;
use crate::outcome::{Kind, Miss, Outcome};
use crate::size_class::ClassId;
use crate::state::{From, JobKey, State, TransferId, Waiter, Write, WriteKey};
use kvstrata_core::SequenceHash;
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use kvstrata_ffi::disk::{Name, OwnerId};
use kvstrata_tiers::Tier;
use kvstrata_tiers::transfer::{Cause, Failure, Reserve, TierWrite, Token};
use std::mem;
use std::sync::Arc;

impl State {
    /// Stores the keys of a batch.
    pub(crate) fn store(&mut self, inner: &Arc<Inner>, job: JobKey, keys: &[SequenceHash]) {
        for (index, hash) in (0..).zip(keys) {
            let of = Waiter { job, index };
            match inner.fixed.class_for(self.lent_bytes(of)) {
                Some(class) => self.store_key(inner, of, class, *hash),
                None => self.miss(of, Miss::TooLong),
            }
        }
        self.start(inner);
    }

    fn store_key(&mut self, inner: &Arc<Inner>, from: Waiter, class: ClassId, hash: SequenceHash) {
        let (of, bytes) = (inner.fixed.class(class), self.lent_bytes(from));
        if self.is_closed {
            return self.miss(from, Miss::Closed);
        }
        if let Some(write) = self.writes.of(class, hash).and_then(|key| self.writes.get_mut(key)) {
            if write.bytes != bytes {
                return self.miss(from, Miss::Length);
            }
            let is_answered = matches!(write.from, From::Host(_))
                && self.jobs.get(from.job).is_some_and(|job| job.until_host);
            self.tally.stats.joined += 1;
            return match is_answered {
                true => self.answer(from, Outcome::Present),
                false => write.waiters.push(from),
            };
        }
        if let Some((block, found)) = of.hold_below(hash) {
            of.release_below(block);
            let outcome = if found == bytes { Outcome::Present } else { Outcome::Missed(Miss::Length) };
            return self.answer(from, outcome);
        }
        if let Some(held) = of.hold_in_host(hash) {
            return self.store_from_host(inner, from, class, (hash, held));
        }
        if self.is_elsewhere(&inner.fixed, class, hash) {
            return self.miss(from, Miss::Length);
        }
        let is_full = self.lanes[class.index()].waiting() >= inner.fixed.rules.queue;
        if is_full {
            return self.miss(from, Miss::Busy);
        }
        if of.host.is_none() && self.is_slow(&inner.fixed, class) {
            return self.miss(from, Miss::Slow);
        }
        let key = self.writes.add(Write::new(class, hash, bytes, From::Arrived, from));
        self.lanes[class.index()].arrived.push_back(key);
    }

    /// Writes a block that only host memory has to the tier below.
    fn store_from_host(
        &mut self,
        inner: &Arc<Inner>,
        from: Waiter,
        class: ClassId,
        (hash, held): (SequenceHash, kvstrata_core::BlockRef),
    ) {
        let (of, bytes) = (inner.fixed.class(class), self.lent_bytes(from));
        let is_same = of.blocks.as_ref().is_some_and(|blocks| blocks.bytes_of(held.id) == bytes);
        let until_host = self.jobs.get(from.job).is_some_and(|job| job.until_host);
        let waiting = self.lanes[class.index()].waiting();
        if !is_same || of.below.is_none() || until_host || waiting >= inner.fixed.rules.queue {
            of.release_host(held);
            let outcome = if is_same { Outcome::Present } else { Outcome::Missed(Miss::Length) };
            return self.answer(from, outcome);
        }
        let key = self.writes.add(Write::new(class, hash, bytes, From::Host(held), from));
        self.lanes[class.index()].ready.push_back(key);
    }

    /// Starts the writes of a size class that may start.
    pub(crate) fn start_writes(&mut self, inner: &Arc<Inner>, class: ClassId) {
        while let Some(key) = self.lanes[class.index()].arrived.front().copied() {
            if !self.take_in(inner, class, key) {
                break;
            }
        }
        while let lane = &mut self.lanes[class.index()]
            && lane.writes_moving < lane.most[1]
            && let Some(key) = lane.ready.pop_front()
        {
            self.start_write(inner, class, key);
        }
    }

    /// Finds the way of a write that has arrived. False: it waits for a block.
    fn take_in(&mut self, inner: &Arc<Inner>, class: ClassId, key: WriteKey) -> bool {
        let Some(write) = self.writes.get(key) else { return false };
        let (of, bytes, first) = (inner.fixed.class(class), write.bytes, write.waiters[0]);
        let Some(lent) = self.read_lent(first) else {
            self.lanes[class.index()].arrived.pop_front();
            self.finish_write(inner, key, Outcome::Missed(Miss::Failed(Cause::Busy)));
            return true;
        };
        let mut target: Option<(From, BlockWrite)> = None;
        if let (Some(blocks), Some((block, is_lost))) = (&of.blocks, of.take_host(&mut self.scratch)) {
            self.tally.stats.dropped += u64::from(is_lost);
            match blocks.write(block, bytes) {
                Some(to) => target = Some((From::CopyToHost(block), to)),
                None => of.give_back_host(block),
            }
        }
        let straight = inner.fixed.rules.straight && lent.is_aligned();
        let is_straight = target.is_none() && of.below.is_some() && straight;
        if target.is_none() && !is_straight && of.below.is_some() {
            target = self.stage(of, class, bytes).map(|(block, to)| (From::CopyToStaging(block), to));
            if target.is_none() {
                return false;
            }
        }
        self.lanes[class.index()].arrived.pop_front();
        let Some(write) = self.writes.get_mut(key) else { return true };
        match target {
            Some((from, to)) => {
                write.from = from;
                let token = TransferId::Write(key).token();
                self.effects.copies.push(Copying::new(token, (lent, to), None, inner.lands_copies()));
            }
            None if is_straight => {
                write.from = From::Lent;
                self.lanes[class.index()].ready.push_back(key);
            }
            // Nothing below, and all of the host is in use.
            None => self.finish_write(inner, key, Outcome::Missed(Miss::Full)),
        }
        true
    }

    /// Takes the end of the copy into host memory.
    pub(crate) fn land_copy_in(&mut self, inner: &Arc<Inner>, key: WriteKey, copied: &Copied) {
        let now = inner.fixed.now();
        let Some(write) = self.writes.get_mut(key) else { return };
        let (class, hash) = (write.class, write.hash);
        let of = inner.fixed.class(class);
        let (block, is_host) = match write.from {
            From::CopyToHost(block) => (block, true),
            From::CopyToStaging(block) => (block, false),
            _ => return,
        };
        let registered = copied.outcome.map(|sum| {
            of.blocks.iter().for_each(|blocks| blocks.seal(block, sum));
            if is_host { of.register(block, hash).map(From::Host) } else { Some(From::Staging(block)) }
        });
        match registered {
            Ok(Some(from)) => write.from = from,
            Ok(None) => write.from = From::Lent,
            Err(_) if is_host => {
                of.give_back_host(block);
                write.from = From::Lent;
            }
            Err(_) => write.from = From::Staging(block),
        }
        if !matches!(registered, Ok(Some(_))) {
            let cause = copied.outcome.err().unwrap_or(Cause::Busy);
            return self.finish_write(inner, key, Outcome::Missed(Miss::Failed(cause)));
        }
        // No copy touches lent memory any more: batches that need not wait are answered.
        let mut answers = Vec::new();
        write.waiters.retain(|of| {
            let outcome = self.jobs.get(of.job).and_then(|job| match () {
                () if is_host && job.until_host => Some(Outcome::Stored(Tier::Host)),
                () if job.is_late(now) => Some(Outcome::Missed(Miss::Late)),
                () => None,
            });
            answers.extend(outcome.map(|outcome| (*of, outcome)));
            outcome.is_none()
        });
        answers.into_iter().for_each(|(of, outcome)| self.answer(of, outcome));
        match of.below {
            Some(_) => self.lanes[class.index()].ready.push_back(key),
            None => self.finish_write(inner, key, Outcome::Stored(Tier::Host)),
        }
    }

    /// Starts a write to the tier below, or ends it if that does not take it.
    fn start_write(&mut self, inner: &Arc<Inner>, class: ClassId, key: WriteKey) {
        let of = inner.fixed.class(class);
        let is_slow = self.is_slow(&inner.fixed, class);
        let Some(write) = self.writes.get(key) else { return };
        let (hash, now) = (write.hash, inner.fixed.now());
        let Some(below) = &of.below else { return };
        let (bytes, sum) = (self.bytes_of_write(inner, write), sum_of_write(inner, write));
        let refused = match () {
            () if is_slow => Some(Miss::Slow),
            () if bytes.is_none() => Some(Miss::Failed(Cause::Busy)),
            () if !below.admits(hash, now) => Some(Miss::Refused),
            () => None,
        };
        below.used(hash);
        let mut slots = mem::take(&mut self.scratch.free);
        if refused.is_none() {
            below.reserve(Reserve::Some(1), &mut slots);
        }
        let slot = slots.pop();
        self.scratch.free = slots;
        let (Some(slot), Some(bytes)) = (slot, bytes) else {
            return self.finish_write(inner, key, Outcome::Missed(refused.unwrap_or(Miss::Full)));
        };
        let straight = matches!(write.from, From::Lent);
        self.tally.stats.straight += u64::from(straight);
        self.tally.stats.staged += u64::from(!straight);
        let since = self.moves(&inner.fixed, class, TransferId::Write(key));
        if let Some(write) = self.writes.get_mut(key) {
            write.since = Some(since);
        }
        let token = Token(TransferId::Write(key).token());
        let name = Name { hash, parent: None, owner: OwnerId::NONE };
        let landing = inner.landing().of_write(token);
        self.effects.writes.push((Arc::clone(below), TierWrite { token, slot, name, bytes, sum, landing }));
    }

    fn bytes_of_write(&self, inner: &Inner, write: &Write) -> Option<BlockRead> {
        let blocks = inner.fixed.class(write.class).blocks.as_ref();
        match write.from {
            From::Host(block) => blocks?.read(block.id),
            From::Staging(block) => blocks?.read(block),
            _ => self.read_lent(*write.waiters.first()?),
        }
    }

    /// Takes the landing of a write.
    pub(crate) fn land_write(
        &mut self,
        inner: &Arc<Inner>,
        key: WriteKey,
        outcome: Result<BlockRead, Failure>,
    ) {
        let Some(write) = self.writes.get_mut(key) else { return };
        let (class, since) = (write.class, write.since.take().unwrap_or_default());
        self.moved(&inner.fixed, class, TransferId::Write(key), since);
        let outcome = match outcome {
            Ok(bytes) => {
                drop(bytes);
                Outcome::Stored(Tier::DISK)
            }
            Err(failure) => {
                let is_unheard = self.writes.get(key).is_some_and(|write| write.waiters.is_empty());
                if is_unheard {
                    self.tally.failed(Kind::Store, failure.cause);
                }
                Outcome::Missed(Miss::Failed(failure.cause))
            }
        };
        self.finish_write(inner, key, outcome);
    }

    /// Ends a write that nothing moves, and answers its batches. A block in host memory counts as
    /// stored, even if the tier below refused it.
    pub(crate) fn finish_write(&mut self, inner: &Arc<Inner>, key: WriteKey, outcome: Outcome) {
        let Some(write) = self.writes.remove(key) else { return };
        let of = inner.fixed.class(write.class);
        let outcome = match (write.from, outcome) {
            (From::Host(_), Outcome::Missed(_)) => Outcome::Stored(Tier::Host),
            (_, outcome) => outcome,
        };
        match write.from {
            From::Host(block) => of.release_host(block),
            From::Staging(block) => self.lanes[write.class.index()].staging.push(block),
            _ => {}
        }
        self.answer_all(write.waiters, outcome);
        write.forgets.into_iter().for_each(|from| self.forget_key(inner, from, write.hash));
    }
}

/// Returns the sum that was made when the bytes came.
fn sum_of_write(inner: &Inner, write: &Write) -> Option<u64> {
    let blocks = inner.fixed.class(write.class).blocks.as_ref()?;
    match write.from {
        From::Host(block) => blocks.sum_of(block.id),
        From::Staging(block) => blocks.sum_of(block),
        _ => None,
    }
}

//! Loads: from host memory by a copy, from the tier below by a read.
//!
//! ```text
//!   host has it ──► copy to the lent memory, its sum compared
//!   read under way ──► join it
//!   below has it ──► read ─┬─► into a host block ──► copies to each waiter's memory; the first registers it
//!                          ├─► straight into the first waiter's memory ──► copies to the others'
//!                          └─► into a staging block ──► copies to each waiter's memory
//! ```

use crate::copier::{Copied, Copying};
use crate::engine::inner::Inner;
use crate::outcome::{Kind, Miss, Outcome};
use crate::size_class::{ClassId, SizeClass};
use crate::state::{CopyFrom, CopyKey, CopyOut, Into, JobKey, Read, ReadKey, State, TransferId, Waiter};
use kvstrata_core::{BlockId, SequenceHash};
use kvstrata_ffi::arena::BlockWrite;
use kvstrata_ffi::disk::Urgency;
use kvstrata_tiers::Tier;
use kvstrata_tiers::transfer::{Cause, Failure, TierRead, Token};
use std::sync::Arc;

/// Where a read may go now.
enum Target {
    Go(Into, BlockWrite),
    /// Nowhere before a block comes back.
    Wait,
    /// Its first waiter's memory cannot be borrowed.
    Borrowed,
}

impl State {
    /// Loads the keys of a batch.
    pub(crate) fn load(&mut self, inner: &Arc<Inner>, job: JobKey, keys: &[SequenceHash]) {
        for (index, hash) in (0..).zip(keys) {
            let to = Waiter { job, index };
            match inner.fixed.class_for(self.lent_bytes(to)) {
                Some(class) => self.bring(inner, to, (class, *hash), Outcome::Absent),
                None => self.miss(to, Miss::TooLong),
            }
        }
        self.start(inner);
    }

    /// Brings a key's bytes to the memory that was lent for it. If no tier has them, the answer is `absent`.
    fn bring(
        &mut self,
        inner: &Arc<Inner>,
        to: Waiter,
        (class, hash): (ClassId, SequenceHash),
        absent: Outcome,
    ) {
        let (of, bytes) = (inner.fixed.class(class), self.lent_bytes(to));
        if self.is_closed {
            return self.miss(to, Miss::Closed);
        }
        if let Some(held) = of.hold_in_host(hash) {
            return match of.blocks.as_ref().is_some_and(|blocks| blocks.bytes_of(held.id) == bytes) {
                true => self.copy_out(inner, CopyOut { class, hash, from: CopyFrom::Host(held), to }),
                false => {
                    of.release_host(held);
                    self.miss(to, Miss::Length)
                }
            };
        }
        if let Some(key) = self.reads.of(class, hash) {
            return self.join(inner, to, key);
        }
        let Some((block, found)) = of.hold_below(hash) else {
            return match self.is_elsewhere(&inner.fixed, class, hash) {
                true => self.miss(to, Miss::Length),
                false => self.answer(to, absent),
            };
        };
        let refused = match () {
            () if found != bytes => Some(Miss::Length),
            () if self.is_slow(&inner.fixed, class) => Some(Miss::Slow),
            () if self.lanes[class.index()].waiting() >= inner.fixed.rules.queue => Some(Miss::Busy),
            () => None,
        };
        if let Some(miss) = refused {
            of.release_below(block);
            return self.miss(to, miss);
        }
        let key = self.reads.add(Read::new(class, (hash, bytes), block, to));
        self.lanes[class.index()].reads.push_back(key);
    }

    /// Makes a load wait for a read that is under way, or take the bytes of one that has landed.
    fn join(&mut self, inner: &Arc<Inner>, to: Waiter, key: ReadKey) {
        let bytes = self.lent_bytes(to);
        let Some(read) = self.reads.get_mut(key).filter(|read| read.bytes == bytes) else {
            return self.miss(to, Miss::Length);
        };
        self.tally.stats.joined += 1;
        if !read.has_landed {
            return read.waiters.push(to);
        }
        read.copies += 1;
        let (class, hash) = (read.class, read.hash);
        self.copy_out(inner, CopyOut { class, hash, from: CopyFrom::Read(key), to });
    }

    /// Starts the reads of a size class that may start.
    pub(crate) fn start_reads(&mut self, inner: &Arc<Inner>, class: ClassId) {
        while let lane = &mut self.lanes[class.index()]
            && lane.reads_moving < lane.most[0]
            && let Some(key) = lane.reads.front().copied()
        {
            match self.target(inner, key) {
                Target::Wait => return,
                Target::Borrowed => {
                    if let Some(read) = self.reads.get_mut(key) {
                        let first = read.waiters.remove(0);
                        let is_over = read.waiters.is_empty();
                        self.miss(first, Miss::Failed(Cause::Busy));
                        if is_over {
                            self.drop_read(inner, key);
                        }
                    }
                }
                Target::Go(into, buffer) => {
                    self.lanes[class.index()].reads.pop_front();
                    self.start_read(inner, key, into, buffer);
                }
            }
        }
    }

    fn target(&mut self, inner: &Inner, key: ReadKey) -> Target {
        let Some(read) = self.reads.get(key) else { return Target::Wait };
        let (class, bytes, first) = (read.class, read.bytes, read.waiters[0]);
        let of = inner.fixed.class(class);
        if let (Some(blocks), Some((block, is_lost))) = (&of.blocks, of.take_host(&mut self.scratch)) {
            self.tally.stats.dropped += u64::from(is_lost);
            match blocks.write(block, bytes) {
                Some(buffer) => return Target::Go(Into::Host(block), buffer),
                None => of.give_back_host(block),
            }
        }
        let Some(lent) = self.write_lent(first) else { return Target::Borrowed };
        if lent.is_aligned() && inner.fixed.rules.straight {
            return Target::Go(Into::Lent, lent);
        }
        drop(lent);
        match self.stage(of, class, bytes) {
            Some((block, buffer)) => Target::Go(Into::Staging(block), buffer),
            None => Target::Wait,
        }
    }

    /// Takes a staging block, to write so many bytes to it.
    pub(crate) fn stage(
        &mut self,
        of: &SizeClass,
        class: ClassId,
        bytes: usize,
    ) -> Option<(BlockId, BlockWrite)> {
        let staging = &mut self.lanes[class.index()].staging;
        let block = staging.pop()?;
        let buffer = of.blocks.as_ref().and_then(|blocks| blocks.write(block, bytes));
        if buffer.is_none() {
            staging.push(block);
        }
        Some((block, buffer?))
    }

    fn start_read(&mut self, inner: &Arc<Inner>, key: ReadKey, into: Into, buffer: BlockWrite) {
        let Some(class) = self.reads.get(key).map(|read| read.class) else { return };
        let since = self.moves(&inner.fixed, class, TransferId::Read(key));
        let straight = into == Into::Lent;
        self.tally.stats.straight += u64::from(straight);
        self.tally.stats.staged += u64::from(!straight);
        let Some(read) = self.reads.get_mut(key) else { return };
        (read.into, read.since) = (into, Some(since));
        let urgent = |of: &Waiter| self.jobs.get(of.job).is_some_and(|job| job.urgency == Urgency::Urgent);
        let urgency = if read.waiters.iter().any(urgent) { Urgency::Urgent } else { Urgency::Ordinary };
        let token = Token(TransferId::Read(key).token());
        let landing = inner.landing().of_read(token);
        let tier_read = TierRead { token, slot: read.block.id, hash: read.hash, urgency, buffer, landing };
        if let Some(below) = &inner.fixed.class(class).below {
            below.used(read.hash);
            self.effects.reads.push((Arc::clone(below), tier_read));
        }
    }

    /// Takes the landing of a read.
    pub(crate) fn land_read(
        &mut self,
        inner: &Arc<Inner>,
        key: ReadKey,
        outcome: Result<BlockWrite, Failure>,
    ) {
        let Some(read) = self.reads.get_mut(key) else { return };
        let (class, since, into) = (read.class, read.since.take().unwrap_or_default(), read.into);
        let block = read.block;
        let waiters = std::mem::take(&mut read.waiters);
        read.has_landed = true;
        let of = inner.fixed.class(class);
        self.moved(&inner.fixed, class, TransferId::Read(key), since);
        of.release_below(block);
        match outcome {
            Ok(buffer) => {
                drop(buffer);
                self.fan_out(inner, key, into, waiters);
            }
            Err(failure) => {
                // A tier that is away, or was not asked, still has the block.
                if !matches!(
                    failure.cause,
                    Cause::Away | Cause::Abandoned | Cause::Cancelled | Cause::Busy | Cause::Buffer
                ) && let Some(below) = &of.below
                {
                    below.forget(block);
                }
                self.answer_all(waiters, Outcome::Missed(Miss::Failed(failure.cause)));
                self.end_read(inner, key);
            }
        }
    }

    /// Hands the bytes of a read to all loads that wait for them.
    fn fan_out(&mut self, inner: &Arc<Inner>, key: ReadKey, into: Into, waiters: Vec<Waiter>) {
        let Some(read) = self.reads.get_mut(key) else { return };
        let (class, hash) = (read.class, read.hash);
        let others = usize::from(into == Into::Lent);
        // The copies read the first waiter's memory, or our block, until the last has ended.
        read.copies = waiters.len() - others + 1;
        read.waiters.extend(waiters.first().copied().filter(|_| into == Into::Lent));
        for to in waiters.into_iter().skip(others) {
            self.copy_out(inner, CopyOut { class, hash, from: CopyFrom::Read(key), to });
        }
        self.copy_ended(inner, key);
    }

    /// Starts a copy to lent memory.
    fn copy_out(&mut self, inner: &Arc<Inner>, copy: CopyOut) {
        let blocks = inner.fixed.class(copy.class).blocks.as_ref();
        let source = match copy.from {
            CopyFrom::Host(block) => {
                blocks.and_then(|blocks| Some((blocks.read(block.id)?, blocks.sum_of(block.id))))
            }
            CopyFrom::Read(key) => self.reads.get(key).and_then(|read| match read.into {
                Into::Host(block) | Into::Staging(block) => Some((blocks?.read(block)?, None)),
                _ => Some((self.read_lent(*read.waiters.first()?)?, None)),
            }),
        };
        let Some(((from, expected), to)) = source.zip(self.write_lent(copy.to)) else {
            return self.copy_done(inner, copy, Err(Cause::Busy));
        };
        let key = CopyKey(self.copies.insert(copy));
        let token = TransferId::Copy(key).token();
        self.effects.copies.push(Copying::new(token, (from, to), expected, inner.lands_copies()));
    }

    /// Takes the end of a copy to lent memory.
    pub(crate) fn land_copy(&mut self, inner: &Arc<Inner>, key: CopyKey, copied: &Copied) {
        if let Some(copy) = self.copies.try_remove(key.0) {
            self.copy_done(inner, copy, copied.outcome);
        }
    }

    fn copy_done(&mut self, inner: &Arc<Inner>, copy: CopyOut, outcome: Result<u64, Cause>) {
        let CopyOut { class, hash, from, to } = copy;
        let of = inner.fixed.class(class);
        match (from, outcome) {
            (CopyFrom::Host(block), Err(Cause::Mismatch)) => {
                // Damaged in host memory: the tier below may have the right bytes.
                self.tally.failed(Kind::Load, Cause::Mismatch);
                of.host.as_ref().map(|host| host.withdraw_held(block));
                of.release_host(block);
                // The memory has been overwritten.
                let absent = Outcome::Missed(Miss::Failed(Cause::Mismatch));
                return self.bring(inner, to, (class, hash), absent);
            }
            (CopyFrom::Host(block), _) => of.release_host(block),
            (CopyFrom::Read(key), Ok(sum)) => self.seal(inner, key, sum),
            (CopyFrom::Read(_), Err(_)) => {}
        }
        let tier = if matches!(from, CopyFrom::Host(_)) { Tier::Host } else { Tier::DISK };
        match outcome {
            Ok(_) => self.answer(to, Outcome::Loaded(tier)),
            Err(cause) => self.miss(to, Miss::Failed(cause)),
        }
        if let CopyFrom::Read(key) = from {
            self.copy_ended(inner, key);
        }
    }

    /// Registers the host block that a read has landed in: a copy has found its sum.
    fn seal(&mut self, inner: &Inner, key: ReadKey, sum: u64) {
        let Some(read) = self.reads.get_mut(key) else { return };
        let (of, Into::Host(block), None) = (inner.fixed.class(read.class), read.into, read.registered)
        else {
            return;
        };
        of.blocks.iter().for_each(|blocks| blocks.seal(block, sum));
        read.registered = of.register(block, read.hash);
    }

    /// Notes that one copy less needs a read's bytes. With the last one the read ends.
    fn copy_ended(&mut self, inner: &Arc<Inner>, key: ReadKey) {
        let Some(read) = self.reads.get_mut(key) else { return };
        read.copies -= 1;
        if read.copies == 0 {
            self.end_read(inner, key);
        }
    }

    /// Ends a read: no copy needs its bytes any more.
    fn end_read(&mut self, inner: &Arc<Inner>, key: ReadKey) {
        let Some(read) = self.reads.remove(key) else { return };
        match (read.registered, read.into) {
            (Some(block), _) => inner.fixed.class(read.class).release_host(block),
            (None, Into::Host(block)) => inner.fixed.class(read.class).give_back_host(block),
            (None, Into::Staging(block)) => self.lanes[read.class.index()].staging.push(block),
            (None, Into::Open | Into::Lent) => {}
        }
        // Straight into the memory of the first waiter.
        self.answer_all(read.waiters, Outcome::Loaded(Tier::DISK));
        read.forgets.into_iter().for_each(|from| self.forget_key(inner, from, read.hash));
    }

    /// Drops a read that has not begun.
    pub(crate) fn drop_read(&mut self, inner: &Arc<Inner>, key: ReadKey) {
        let Some(read) = self.reads.remove(key) else { return };
        self.lanes[read.class.index()].reads.retain(|queued| *queued != key);
        inner.fixed.class(read.class).release_below(read.block);
        read.forgets.into_iter().for_each(|from| self.forget_key(inner, from, read.hash));
    }
}

//! Keys that are forgotten.

use crate::engine::inner::Inner;
use crate::outcome::{Miss, Outcome};
use crate::size_class::ClassId;
use crate::state::{JobKey, State, Waiter};
use kvstrata_core::SequenceHash;
use std::sync::Arc;

impl State {
    /// Forgets the keys of a batch.
    pub(crate) fn forget(&mut self, inner: &Arc<Inner>, job: JobKey, keys: &[SequenceHash]) {
        for (index, hash) in (0..).zip(keys) {
            let from = Waiter { job, index };
            match self.is_closed {
                true => self.miss(from, Miss::Closed),
                false => self.forget_key(inner, from, *hash),
            }
        }
        self.start(inner);
    }

    /// Forgets a key in all size classes. If a transfer of it is under way, the call is answered after it.
    pub(crate) fn forget_key(&mut self, inner: &Arc<Inner>, from: Waiter, hash: SequenceHash) {
        for class in inner.fixed.class_ids() {
            if let Some(write) = self.writes.of(class, hash).and_then(|key| self.writes.get_mut(key)) {
                return write.forgets.push(from);
            }
            if let Some(read) = self.reads.of(class, hash).and_then(|key| self.reads.get_mut(key)) {
                return read.forgets.push(from);
            }
        }
        let found =
            inner.fixed.class_ids().fold(false, |found, class| self.forget_in(inner, class, hash) | found);
        self.answer(from, if found { Outcome::Forgotten } else { Outcome::Absent });
    }

    fn forget_in(&mut self, inner: &Inner, class: ClassId, hash: SequenceHash) -> bool {
        let of = inner.fixed.class(class);
        let in_host = of.host.as_ref().and_then(|host| Some((host, host.find(hash)?.into_ref())));
        if let Some((host, held)) = in_host {
            // Copies that read it go on; the last one frees it.
            host.withdraw_held(held);
            host.release_refs([held]);
        }
        let below = of.below.as_ref().and_then(|below| Some((below, below.find(hash, false)?.into_ref())));
        if let Some((below, held)) = below {
            below.pool().release_refs([held]);
            match below.reserve_this(held) {
                Some(slot) => {
                    below.release(slot);
                    self.effects.forget.push(Arc::clone(below));
                }
                // A lookup holds it for a moment.
                None => below.pool().find(hash).into_iter().for_each(|held| {
                    let held = held.into_ref();
                    below.pool().withdraw_held(held);
                    below.pool().release_refs([held]);
                }),
            }
        }
        in_host.is_some() || below.is_some()
    }
}

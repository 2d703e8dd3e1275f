//! Leases, and blocks taken out by name.

use super::oracle::Owner;
use super::*;

impl Run<'_> {
    pub(super) fn lease(&mut self, weak: BlockRef) {
        let may = self.oracle.alive(weak).is_some_and(|known| !known.withdrawn && known.leases < 15);
        assert_eq!(self.pool.lease(weak), may, "what is registered can be leased");
        if may {
            self.oracle.known.get_mut(&weak.id.0).expect("alive").leases += 1;
            self.leased.push(weak);
        }
    }

    /// Ends a lease, and beside it some that do not exist.
    pub(super) fn end_lease(&mut self, which: u8) {
        let Some(which) = index(which, self.leased.len()) else { return };
        let weak = self.leased.swap_remove(which);
        self.pool.end_lease(next(weak));
        self.pool.end_lease(self.beyond(0));
        self.pool.end_lease(weak);
        self.oracle.lease_ended(weak.id.0);
        if self.oracle.alive(weak).is_none_or(|known| known.leases == 0) {
            self.pool.end_lease(weak);
        }
    }

    pub(super) fn take_out(&mut self, weak: BlockRef) {
        let number = self.oracle.alive(weak).map(|known| known.number);
        let result = self.pool.take_out(weak);
        let ended = result.as_ref().map(drop).map_err(|error| *error);
        self.ended(weak, ended);
        if let Ok(victim) = result {
            assert_eq!((victim.id(), Some(victim.hash())), (weak.id, number.map(hash)));
            self.oracle.taken(victim.id(), Owner::Victim);
            self.victims.push(victim);
        }
    }
}

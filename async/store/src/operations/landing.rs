//! Answers of movers.

use crate::engine::inner::{Arrival, Inner};
use crate::state::{State, TransferId};
use kvstrata_tiers::transfer::Landed;
use std::sync::Arc;

impl State {
    /// Takes landings, then starts the transfers that have room now.
    pub(crate) fn land(&mut self, inner: &Arc<Inner>, arrived: impl Iterator<Item = Arrival>) {
        for arrival in arrived {
            match arrival {
                Arrival::Copy(copied) => match TransferId::of(copied.token) {
                    TransferId::Copy(key) => self.land_copy(inner, key, &copied),
                    TransferId::Write(key) => self.land_copy_in(inner, key, &copied),
                    TransferId::Read(_) => {}
                },
                Arrival::Tier(Landed::Read(token, outcome)) => {
                    if let TransferId::Read(key) = TransferId::of(token.0) {
                        self.land_read(inner, key, outcome);
                    }
                }
                Arrival::Tier(Landed::Write(token, outcome)) => {
                    if let TransferId::Write(key) = TransferId::of(token.0) {
                        self.land_write(inner, key, outcome);
                    }
                }
                // A store has no device.
                Arrival::Tier(Landed::Copies(_)) => {}
            }
        }
        self.start(inner);
    }
}

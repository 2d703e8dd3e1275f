//! Copies in virtual time. Each takes a while, and some are abandoned.

use crate::common::Random;
use crate::time::{Handle, Instant, sleep_until};
use kvstrata_ffi::disk::sum_of_payload;
use kvstrata_store::{Copier, Copying};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[derive(Debug)]
pub struct SimCopier {
    runtime: Handle,
    random: Mutex<Random>,
    /// Copies of a thousand that are abandoned.
    abandon: u64,
}

impl SimCopier {
    pub fn new(seed: u64, abandon: u64) -> SimCopier {
        SimCopier { runtime: Handle::current(), random: Mutex::new(Random(seed)), abandon }
    }
}

impl Copier for SimCopier {
    fn start(&self, copies: Vec<Copying>) {
        for mut copying in copies {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            let (takes, is_abandoned) = (random.below(40), random.below(1000) < self.abandon);
            let until = Instant::now() + Duration::from_millis(takes);
            self.runtime.spawn(async move {
                sleep_until(until).await;
                if !is_abandoned {
                    copying.carry_out(|from, to| {
                        to.copy_from_slice(from);
                        sum_of_payload(from)
                    });
                }
            });
        }
    }
}

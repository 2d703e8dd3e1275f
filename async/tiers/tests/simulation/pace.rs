//! The model's iterations: by the clock, or as an engine's loop makes them, which runs none while all of
//! its requests wait. A request that needed the next iteration's bytes then would wait until its deadline.
//!
//! ```text
//!   a request decodes ───────────────────────────────► an iteration
//!   all wait ──► nothing moves, nothing changes ──► one iteration on trial ──► it serves a request: a stall
//! ```
//!
//! Invariants
//! - I1: an urgent call (an allocation, an onboarding, a resumption) waits for no iteration.

use crate::layers::Written;
use crate::patience::pass;
use crate::world::World;
use kvstrata_testing::virtual_time::Instant;
use kvstrata_tiers::Census;
use kvstrata_tiers::transfer::Path;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Longer than a pause before a retry: if nothing has changed for so long, and no transfer has ended,
/// nothing will until a deadline.
const STILL: Duration = Duration::from_millis(60);
const LOOK: Duration = Duration::from_millis(20);

/// The requests of engines.
#[derive(Debug, Default)]
pub struct Pace {
    requests: Cell<u64>,
    waiting: Cell<u64>,
    trial: RefCell<Option<Trial>>,
    /// Blocks that iterations write.
    pub written: RefCell<Vec<Written>>,
}

/// The first events since an iteration on trial.
#[derive(Debug, Default)]
struct Trial {
    served: Option<(Instant, &'static str)>,
    /// A request gave up, was late, or began: that may serve others, too.
    other: Option<Instant>,
}

impl World {
    pub fn request_begins(&self) {
        self.pace.requests.set(self.pace.requests.get() + 1);
        self.not_by_trial();
    }

    pub fn request_ends(&self) {
        self.pace.requests.set(self.pace.requests.get() - 1);
    }

    /// Waits for a call, urgent or not; `served` says whether it was served.
    pub async fn waits<F: Future>(
        &self,
        urgent: bool,
        what: &'static str,
        future: F,
        served: impl Fn(&F::Output) -> bool,
    ) -> F::Output {
        let waiting = &self.pace.waiting;
        waiting.set(waiting.get() + u64::from(urgent));
        let output = future.await;
        waiting.set(waiting.get() - u64::from(urgent));
        match (&mut *self.pace.trial.borrow_mut(), served(&output)) {
            (Some(trial), true) => _ = trial.served.get_or_insert((Instant::now(), what)),
            (Some(trial), false) => _ = trial.other.get_or_insert(Instant::now()),
            (None, _) => {}
        }
        output
    }

    /// Whether some request does not wait.
    fn decodes(&self) -> bool {
        self.pace.requests.get() > self.pace.waiting.get()
    }

    fn not_by_trial(&self) {
        if let Some(trial) = &mut *self.pace.trial.borrow_mut() {
            trial.other.get_or_insert(Instant::now());
        }
    }

    /// One iteration after the other.
    pub async fn iterate(self: Rc<World>, every: Duration) {
        while self.has_engines() {
            self.one_iteration(every).await;
        }
    }

    /// Iterates while some request decodes; runs an iteration on trial where all wait and nothing goes on.
    pub async fn pace(self: Rc<World>, every: Duration) {
        let mut still: Option<(Census, [u64; 4], Instant)> = None;
        while self.has_engines() {
            if self.decodes() {
                self.one_iteration(every).await;
                continue;
            }
            pass(LOOK).await;
            let now = self.manager().census();
            // An attempt may begin and fail between two looks: the census is the same, and the
            // pause after it has only begun.
            let ended = self.ended_transfers();
            let quiet = now.moving + now.gated + now.purges == 0;
            let waits = self.pace.waiting.get() > 0 && !self.decodes();
            if !waits || !quiet || self.closing.get() {
                still = None;
                continue;
            }
            match &still {
                Some((census, before, since)) if *census == now && *before == ended => {
                    if since.elapsed() >= STILL {
                        self.trial().await;
                        still = None;
                    }
                }
                _ => still = Some((now, ended, Instant::now())),
            }
        }
    }

    /// Transfers of each path that have ended, well or not.
    fn ended_transfers(&self) -> [u64; 4] {
        let stats = self.manager().stats();
        Path::OF_SETTINGS.map(|path| stats.path(path).transfers)
    }

    /// Runs an iteration though all wait: a request that it serves has waited for it (I1).
    async fn trial(&self) {
        let before = self.manager().census();
        *self.pace.trial.borrow_mut() = Some(Trial::default());
        if let Err(error) = self.step() {
            self.violation(error.to_string());
        }
        let (mut last, mut since) = (before.clone(), Instant::now());
        while since.elapsed() < STILL && self.happened().is_none() {
            pass(LOOK / 4).await;
            let now = self.manager().census();
            if now != last || now.moving > 0 {
                (last, since) = (now, Instant::now());
            }
        }
        // Others may be answered in that moment.
        pass(LOOK / 4).await;
        let trial = self.pace.trial.borrow_mut().take().unwrap_or_default();
        if let Some((when, what)) =
            trial.served.filter(|(when, _)| trial.other.is_none_or(|other| other > *when))
        {
            let since = when.elapsed();
            self.violation(format!(
                "{what} waited for the next iteration, and was served {since:?} ago: {before:?}"
            ));
        }
    }

    fn happened(&self) -> Option<Instant> {
        let trial = self.pace.trial.borrow();
        trial.as_ref().and_then(|trial| trial.other.or(trial.served.map(|(when, _)| when)))
    }
}

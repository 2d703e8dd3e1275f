//! The steps of layers in which a copy goes down.

use crate::scheduler::Gate;

/// How a copy goes down by layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    /// The iteration that it goes with.
    iteration: u64,
    /// Layers a step; the last one may have fewer.
    step: u32,
}

impl Steps {
    /// So many layers a step, with the layers of an iteration.
    pub(crate) fn new(iteration: u64, step: u32) -> Steps {
        Steps { iteration, step }
    }

    /// Returns the iteration that it goes with.
    pub(crate) fn iteration(self) -> u64 {
        self.iteration
    }

    /// Returns the end of the layers that may be copied, when `done` of `layers` are done.
    pub(crate) fn open(self, done: u32, layers: u32) -> u32 {
        if done >= layers { layers } else { done / self.step * self.step }
    }

    /// Returns the gate of the step that follows the landed layers.
    pub(crate) fn next(self, landed: u32, layers: u32) -> Gate {
        let end = (landed / self.step * self.step).saturating_add(self.step).min(layers);
        Gate::Layer { iteration: self.iteration, layer: end.saturating_sub(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_open_whole_and_the_last_one_is_the_rest() {
        let steps = Steps { iteration: 7, step: 4 };
        let open: Vec<u32> = (0..=10).map(|done| steps.open(done, 10)).collect();
        assert_eq!(open, [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 10]);
        let next = [0, 4, 8].map(|landed| steps.next(landed, 10));
        assert_eq!(next, [3, 7, 9].map(|layer| Gate::Layer { iteration: 7, layer }));
    }
}

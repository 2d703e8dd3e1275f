//! Transfers down that wait for host memory, and what is known of the host tier being full.

use crate::state::DownId;
use crate::transfer::Class;
use std::collections::VecDeque;

/// By who goes first, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct WaitingForHost {
    /// Those that were turned back meanwhile are found out when it is their turn.
    victims: VecDeque<DownId>,
    /// A victim has come since blocks of the host were [pressed](crate::state::Traffic::press_sinking) for
    /// them.
    changed: bool,
    /// Copies by choice.
    chosen: [VecDeque<DownId>; Class::ALL.len()],
    /// When no block of the host was to be had for a copy by choice: how many seemed available all the same;
    /// or how few since.
    full: Option<usize>,
}

impl WaitingForHost {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.victims.len() + self.chosen()
    }

    /// How many victims wait.
    pub(crate) fn victims(&self) -> usize {
        self.victims.len()
    }

    /// How many copies by choice wait.
    pub(crate) fn chosen(&self) -> usize {
        self.chosen.iter().map(VecDeque::len).sum()
    }

    /// Those of a class.
    pub(crate) fn chosen_of(&self, class: Class) -> usize {
        self.chosen[class as usize].len()
    }

    /// A victim waits.
    pub(crate) fn add_victim(&mut self, key: DownId) {
        self.victims.push_back(key);
        self.changed = true;
    }

    /// A copy by choice waits.
    pub(crate) fn add_chosen(&mut self, key: DownId, class: Class) {
        self.chosen[class as usize].push_back(key);
    }

    pub(crate) fn first_victim(&self) -> Option<DownId> {
        self.victims.front().copied()
    }

    pub(crate) fn pop_victim(&mut self) -> Option<DownId> {
        self.victims.pop_front()
    }

    pub(crate) fn first_chosen(&self) -> Option<DownId> {
        self.chosen.iter().find_map(|of_class| of_class.front().copied())
    }

    pub(crate) fn pop_chosen(&mut self) -> Option<DownId> {
        self.chosen.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Copies by choice, by class.
    pub(crate) fn iter_chosen(&self) -> impl Iterator<Item = DownId> {
        self.chosen.iter().flatten().copied()
    }

    /// Whether a victim has come since the last time.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// One waits no more.
    pub(crate) fn remove(&mut self, key: DownId) {
        self.retain(|waits| *waits != key);
    }

    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&DownId) -> bool) {
        self.victims.retain(&mut stays);
        self.chosen.iter_mut().for_each(|of_class| of_class.retain(&mut stays));
    }

    pub(crate) fn clear(&mut self) {
        self.retain(|_| false);
    }

    /// Whether no block of the host was to be had for a copy by choice, when it was last asked.
    pub(crate) fn was_full(&self) -> bool {
        self.full.is_some()
    }

    /// Whether that is so still: no more blocks are available than then.
    pub(crate) fn is_full(&mut self, available: impl Fn() -> usize) -> bool {
        self.full = self.full.and_then(|before| Some(available()).filter(|now| *now <= before));
        self.full.is_some()
    }

    /// None was to be had, though so many seemed available.
    pub(crate) fn note_full(&mut self, available: usize) {
        self.full = Some(available);
    }

    /// A block of the host may leave again.
    pub(crate) fn not_full(&mut self) {
        self.full = None;
    }
}

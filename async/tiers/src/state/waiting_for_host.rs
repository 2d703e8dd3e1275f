//! Transfers down that wait for host memory, and whether the host tier is known to be full.

use crate::state::DownId;
use crate::transfer::Class;
use std::collections::VecDeque;

/// The waiting transfers in order: victims first, then copies by choice by class; each in order
/// of arrival.
#[derive(Debug, Default)]
pub(crate) struct WaitingForHost {
    /// Victims that were turned back stay here until their turn comes.
    victims: VecDeque<DownId>,
    /// A victim has been added since blocks of the host were
    /// [pressed](crate::state::Traffic::press_sinking) for victims.
    changed: bool,
    /// Copies by choice, by class.
    chosen: [VecDeque<DownId>; Class::ALL.len()],
    /// Set when no block of the host was found for a copy by choice: the number of blocks that seemed
    /// available all the same.
    full: Option<usize>,
}

impl WaitingForHost {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.victims.len() + self.chosen()
    }

    /// Returns the number of waiting victims.
    pub(crate) fn victims(&self) -> usize {
        self.victims.len()
    }

    /// Returns the number of waiting copies by choice.
    pub(crate) fn chosen(&self) -> usize {
        self.chosen.iter().map(VecDeque::len).sum()
    }

    /// Returns the number of waiting copies by choice of a class.
    pub(crate) fn chosen_of(&self, class: Class) -> usize {
        self.chosen[class as usize].len()
    }

    /// Adds a victim.
    pub(crate) fn add_victim(&mut self, key: DownId) {
        self.victims.push_back(key);
        self.changed = true;
    }

    /// Adds a copy by choice.
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

    /// Returns the copies by choice, by class.
    pub(crate) fn iter_chosen(&self) -> impl Iterator<Item = DownId> {
        self.chosen.iter().flatten().copied()
    }

    /// Whether a victim has been added since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Removes a transfer.
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

    /// Whether the last search found no block of the host for a copy by choice.
    pub(crate) fn was_full(&self) -> bool {
        self.full.is_some()
    }

    /// Whether that still holds: no more blocks are available than then.
    pub(crate) fn is_full(&mut self, available: impl Fn() -> usize) -> bool {
        self.full = self.full.and_then(|before| Some(available()).filter(|now| *now <= before));
        self.full.is_some()
    }

    /// Notes that no block was found, though so many seemed available.
    pub(crate) fn note_full(&mut self, available: usize) {
        self.full = Some(available);
    }

    /// Notes that a block of the host may leave again.
    pub(crate) fn not_full(&mut self) {
        self.full = None;
    }
}

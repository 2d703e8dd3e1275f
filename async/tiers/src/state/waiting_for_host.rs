//! Transfers down that wait for host memory.

use crate::transfer::Class;
use std::collections::VecDeque;

/// By who goes first, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Grounded {
    /// Those that were turned back meanwhile are found out when it is their turn.
    pub(crate) victims: VecDeque<u32>,
    /// A victim has come since blocks of the host were [pressed](Traffic::press_sinking) for them.
    pub(crate) news: bool,
    pub(crate) chosen: [VecDeque<u32>; Class::ALL.len()],
}

impl Grounded {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.victims.len() + self.chosen()
    }

    pub(crate) fn victims(&self) -> usize {
        self.victims.len()
    }

    pub(crate) fn chosen(&self) -> usize {
        self.chosen.iter().map(VecDeque::len).sum()
    }

    /// Copies by choice of a class.
    pub(crate) fn chosen_of(&self, class: Class) -> usize {
        self.chosen[class as usize].len()
    }

    pub(crate) fn pop_chosen(&mut self) -> Option<u32> {
        self.chosen.iter_mut().find_map(VecDeque::pop_front)
    }

    pub(crate) fn first_chosen(&self) -> Option<u32> {
        self.chosen.iter().find_map(|of_class| of_class.front().copied())
    }

    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&u32) -> bool) {
        self.victims.retain(&mut stays);
        self.chosen.iter_mut().for_each(|of_class| of_class.retain(&mut stays));
    }

    pub(crate) fn clear(&mut self) {
        self.retain(|_| false);
    }
}

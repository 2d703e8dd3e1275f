//! The parts of a store that do not change.

use crate::copier::Copier;
use crate::size_class::{ClassId, SizeClass};
use kvstrata_tiers::Runtime;
use std::sync::Arc;
use std::time::Duration;

/// Limits of a store.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rules {
    /// Transfers of a size class that may wait. Further keys are answered with
    /// [`Miss::Busy`](crate::Miss::Busy).
    pub queue: usize,
    /// The deadline of a load. A key is then answered with [`Miss::Late`](crate::Miss::Late), unless a
    /// transfer may still touch its memory.
    pub load_deadline: Duration,
    /// The deadline of a store, and of a call that forgets.
    pub store_deadline: Duration,
    /// Whether page-aligned memory goes straight to and from the tier below. A transfer that has begun then
    /// delays the answer until the hardware answers. Otherwise all bytes pass through staging blocks: a copy
    /// more, and each key is answered by its deadline.
    pub straight: bool,
    /// The tier below is spared when its transfers take longer than this on average.
    pub slow_above: Duration,
    /// It is used again when they take less than this.
    pub slow_below: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            queue: 4096,
            straight: true,
            load_deadline: Duration::from_secs(10),
            store_deadline: Duration::from_secs(30),
            slow_above: Duration::from_secs(2),
            slow_below: Duration::from_millis(500),
        }
    }
}

/// The parts.
pub(crate) struct Fixed {
    /// From small to large.
    pub(crate) classes: Box<[SizeClass]>,
    pub(crate) rules: Rules,
    pub(crate) copier: Arc<dyn Copier>,
    pub(crate) runtime: Arc<dyn Runtime>,
}

impl Fixed {
    pub(crate) fn class(&self, class: ClassId) -> &SizeClass {
        &self.classes[class.index()]
    }

    /// Returns the size class for an entry of this length: the smallest that holds it.
    pub(crate) fn class_for(&self, bytes: usize) -> Option<ClassId> {
        let class = self.classes.partition_point(|class| class.block_bytes < bytes);
        (class < self.classes.len() && bytes > 0).then_some(ClassId(class as u16))
    }

    pub(crate) fn class_ids(&self) -> impl Iterator<Item = ClassId> + use<> {
        (0..self.classes.len() as u16).map(ClassId)
    }

    pub(crate) fn now(&self) -> Duration {
        self.runtime.now()
    }
}

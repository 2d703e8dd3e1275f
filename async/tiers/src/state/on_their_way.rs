//! Blocks of a group that its transfers will free.
//!
//! Invariants
//! - I1: each count is of existing transfers. A transfer is counted from when it is sent until it has
//!   ended, or was turned back.

use crate::state::Have;

/// The counts.
#[derive(Debug, Default)]
pub(crate) struct OnTheirWay {
    device_victims: u32,
    host_victims: u32,
    host_copies: u32,
    /// Victims of the host on their way to a tier further down than the first. Requests do not wait for
    /// their blocks.
    further: u32,
    landing: u32,
}

impl OnTheirWay {
    /// Number of device victims on their way down: blocks that will be free.
    pub(crate) fn device_victims(&self) -> usize {
        self.device_victims as usize
    }

    /// Number of host victims on their way to the first tier below.
    pub(crate) fn host_victims(&self) -> usize {
        self.host_victims as usize
    }

    /// Number of host blocks that stay there, and are on their way to the disk: an allocation that takes
    /// one afterwards loses nothing.
    pub(crate) fn host_copies(&self) -> usize {
        self.host_copies as usize
    }

    /// Number of transfers from the device that have their host block, which the host tier keeps, and
    /// that wait for no layer of the model.
    pub(crate) fn landing(&self) -> usize {
        self.landing as usize
    }

    /// Whether blocks pass through the host tier, and will be available again.
    pub(crate) fn any_through_host(&self) -> bool {
        self.landing + self.host_victims > 0
    }

    /// Number of transfers that come to the host tier, or leave it.
    pub(crate) fn through_host(&self) -> usize {
        (self.landing + self.host_victims + self.host_copies) as usize
    }

    /// Counts a victim of the device that is sent down.
    pub(crate) fn device_victim_sent(&mut self) {
        self.device_victims += 1;
    }

    /// Counts it no more: it has ended, or was turned back.
    pub(crate) fn device_victim_ended(&mut self) {
        self.device_victims -= 1;
    }

    /// Counts a block of the host that is sent down; `further`: beyond the first tier below.
    pub(crate) fn host_block_sent(&mut self, source: Have, further: bool) {
        *self.of_host(source, further) += 1;
    }

    /// Counts it no more: its transfer has ended.
    pub(crate) fn host_block_ended(&mut self, source: Have, further: bool) {
        *self.of_host(source, further) -= 1;
    }

    /// Notes that a victim of the host was turned back: it stays.
    pub(crate) fn host_victim_turned_back(&mut self, further: bool) {
        match further {
            true => self.further -= 1,
            false => self.host_victims -= 1,
        }
        self.host_copies += 1;
    }

    /// Notes that a victim of the host goes on from the first tier below.
    pub(crate) fn host_victim_goes_further(&mut self) {
        self.host_victims -= 1;
        self.further += 1;
    }

    /// Counts a transfer from the device that has got its host block.
    pub(crate) fn landing_begun(&mut self) {
        self.landing += 1;
    }

    /// Counts it no more: it has ended, or waits for a layer.
    pub(crate) fn landing_over(&mut self) {
        self.landing -= 1;
    }

    fn of_host(&mut self, source: Have, further: bool) -> &mut u32 {
        match source {
            Have::Owned(_) if further => &mut self.further,
            Have::Owned(_) => &mut self.host_victims,
            Have::Held(_) | Have::Leased(_) => &mut self.host_copies,
        }
    }
}

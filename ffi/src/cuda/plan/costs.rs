//! What each route costs.

use super::super::copy::Direction;
use super::route::{Fragments, Route};

/// What routes cost on a device.
#[derive(Debug, Clone, Default)]
pub struct CopyCosts {}

impl CopyCosts {
    /// How many CTAs a kernel gets.
    #[must_use]
    pub fn ctas(&self, direction: Direction, multiprocessors: u32) -> u32 {
        if direction == Direction::DeviceToDevice { multiprocessors * 8 } else { 32 }
    }

    /// The cheapest of the routes that there are.
    #[must_use]
    pub fn choose(
        &self,
        _direction: Direction,
        fragments: Fragments,
        there: impl Fn(Route) -> bool,
    ) -> Route {
        let small = fragments.bytes / fragments.pieces.max(1) < 64 << 10;
        if small && there(Route::Kernel) {
            return Route::Kernel;
        }
        if there(Route::Batch) { Route::Batch } else { Route::Single }
    }
}

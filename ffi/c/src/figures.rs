//! The figures of a store, as a struct and as text.

use crate::edge::edge;
use crate::sized::{SizeFirst, write};
use crate::status::kvs_status::KVS_TOO_SMALL;
use crate::status::{Failure, kvs_status};
use crate::store::{kvs_store, store};
use crate::text::{check_array, check_out, copy_out};
use kvstrata::store::{SizeClassStats, StoreStats};
use std::ffi::c_char;

/// Figures of a store since it was opened. Set the size, then call kvs_stats. kvs_metrics_text has more: by
/// size of blocks, and misses by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct kvs_store_stats {
    /// sizeof(kvs_store_stats). The call leaves it as it is.
    pub size: u32,
    /// 1 while the disk takes so long that lookups pass it by, otherwise 0.
    pub disk_is_slow: u32,
    /// Keys that were stored.
    pub stored_keys: u64,
    /// Bytes that were stored.
    pub stored_bytes: u64,
    /// Keys of stores that were there already.
    pub present_keys: u64,
    /// Keys of stores that were not stored.
    pub store_misses: u64,
    /// Keys that were loaded from host memory.
    pub loaded_from_host_keys: u64,
    /// Keys that were loaded from the disk.
    pub loaded_from_disk_keys: u64,
    /// Bytes that were loaded.
    pub loaded_bytes: u64,
    /// Keys of loads that were not there.
    pub absent_keys: u64,
    /// Keys of loads that were there and were not loaded.
    pub load_misses: u64,
    /// Keys that were forgotten on request.
    pub forgotten_keys: u64,
    /// Keys that joined a transfer of the same key under way.
    pub joined_keys: u64,
    /// Blocks evicted from host memory that the disk did not have.
    pub dropped_blocks: u64,
    /// Transfers straight between lent memory and the disk.
    pub straight_transfers: u64,
    /// Transfers by way of host memory of the store.
    pub staged_transfers: u64,
    /// Batches under way now.
    pub batches: u64,
    /// Blocks of the host tier.
    pub host_blocks: u64,
    /// Blocks of the host tier that hold a key now.
    pub host_blocks_used: u64,
    /// Blocks of the disk.
    pub disk_blocks: u64,
    /// Blocks of the disk that hold a key now.
    pub disk_blocks_used: u64,
    /// Transfers that wait now.
    pub waiting_transfers: u64,
    /// Transfers to and from the disk under way now.
    pub moving_transfers: u64,
}

// SAFETY: numbers: two of 4 bytes in the first unit, then one a unit.
unsafe impl SizeFirst for kvs_store_stats {
    const NAME: &'static str = "kvs_store_stats";
}

/// Writes the figures of a store. A struct of an older header gets the fields that it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_stats(store: *const kvs_store, stats: *mut kvs_store_stats) -> kvs_status {
    edge(|| {
        // SAFETY: C1.
        let shared = unsafe { self::store(store) }?;
        let figures = figures(&shared.store.stats());
        // SAFETY: C2.
        unsafe { write("stats", stats, &figures) }
    })
}

fn figures(stats: &StoreStats) -> kvs_store_stats {
    let sum = |of: fn(&SizeClassStats) -> u64| stats.classes.iter().map(of).sum();
    kvs_store_stats {
        size: 0,
        disk_is_slow: stats.classes.iter().any(|class| class.slow).into(),
        stored_keys: stats.stored,
        stored_bytes: stats.stored_bytes,
        present_keys: stats.present,
        store_misses: stats.store_misses.values().sum(),
        loaded_from_host_keys: stats.loaded_from_host,
        loaded_from_disk_keys: stats.loaded_from_below,
        loaded_bytes: stats.loaded_bytes,
        absent_keys: stats.absent,
        load_misses: stats.load_misses.values().sum(),
        forgotten_keys: stats.forgotten,
        joined_keys: stats.joined,
        dropped_blocks: stats.dropped,
        straight_transfers: stats.straight,
        staged_transfers: stats.staged,
        batches: stats.batches,
        host_blocks: sum(|class| class.host_blocks[0]),
        host_blocks_used: sum(|class| class.host_blocks[1]),
        disk_blocks: sum(|class| class.below_blocks[0]),
        disk_blocks_used: sum(|class| class.below_blocks[1]),
        waiting_transfers: sum(|class| class.waiting),
        moving_transfers: sum(|class| class.moving),
    }
}

/// Writes the figures of a store as Prometheus text.
///
/// buffer, bytes: where to write the text and a NUL.
/// needed: receives the bytes that are needed, with the NUL; may be NULL.
/// Returns KVS_OK; KVS_TOO_SMALL: nothing was written. The text may have grown by the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_metrics_text(
    store: *const kvs_store,
    buffer: *mut c_char,
    bytes: usize,
    needed: *mut usize,
) -> kvs_status {
    edge(|| {
        // SAFETY: C1.
        let shared = unsafe { self::store(store) }?;
        if bytes > 0 {
            check_array("buffer", buffer, bytes)?;
        }
        let text = shared.store.metrics_text();
        let needs = text.len() + 1;
        if !needed.is_null() {
            check_out("needed", needed)?;
            // SAFETY: C2.
            unsafe { needed.write(needs) };
        }
        if bytes < needs {
            let message = format!("bytes: {bytes}; give {needs}");
            return Err(Failure::new(KVS_TOO_SMALL, message));
        }
        // SAFETY: C2, and it is not NULL.
        unsafe { copy_out(&text, buffer, bytes) };
        Ok(())
    })
}

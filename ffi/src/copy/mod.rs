//! Copy plans, executed by the CPU between host regions.
//!
//! memcpy reads every line that it is about to overwrite, keeps lines in the cache that are not read
//! again, and starts anew at each piece. For a plan of gigabytes, two means are faster: stores that
//! bypass the caches, and several pieces under way at once.
//!
//! ```text
//!   plan ─► pieces ─┬─ small plan ──► ordinary stores: they stay in the caches     memcpy, or vector code
//!                   ├─ large pieces ► lanes: four pieces in turns, 256 bytes each  non-temporal
//!                   │                   lane 0  ██████████░░░░░░        ░ still to come
//!                   │                   lane 1  ██████░░░░░░░░░░        each prefetches the lines 1 KiB on,
//!                   │                   lane 2  ██░░░░░░░░░░░░░░        at its end those of its next piece
//!                   └─ small pieces ► rows: one by one, a second walk runs ahead   whole lines: non-temporal
//! ```
//!
//! The reasons, measured on Zen 4 by `benches/run --copies` (2 cores in a virtual machine, 2 MiB pages
//! asked for). The table is in benches/README.md; a constant's figures stand beside it in the code.
//!
//! - An ordinary store reads its line first and pushes another out: memcpy moves 12 GB/s in pieces of 32
//!   KiB, a plain loop of non-temporal stores 13, and 22 over one stretch.
//! - The rest is reading. Reading alone, with nothing written, reaches 31 GB/s over one stretch, 26 in
//!   stretches of 256 KiB in no order, 15 in stretches of 32 KiB and 8 of 8 KiB: each start costs about a
//!   microsecond. Four pieces at once, with hints for the second-level cache, copy 18.8 GB/s, more than
//!   one after another can be read. The microsecond is probably the hardware prefetcher's, which has to
//!   detect a stretch first. This is inferred: the cost is the same for all sizes except the smallest,
//!   and the machine has no counters to show it.
//! - So the destination's order matters little and the source's much: [`HostCopy`] tells a plan's author
//!   how to order it.
//! - A plan that fits the last-level cache (32 MiB here) together with its source behaves the other way
//!   round. Up to 4 MiB, ordinary stores are 1.5 times as fast. If the time to read the bytes afterwards
//!   is counted, ordinary stores lead up to 12 MiB.
//!
//! Sources: Intel, *64 and IA-32 Architectures Optimization Reference Manual* (248966), on write
//! combining, non-temporal stores and software prefetch: whole lines, few streams, a fence at the end.
//! AMD, *Software Optimization Guide for the AMD Zen4 Microarchitecture* (57647), on write combining and
//! data prefetchers.
//!
//! Invariants
//! - I1: a path is only made if the CPU has its instructions.
//! - I2: exactly the bytes of the plan's pieces are written: a line is stored whole only if all of it
//!   belongs to one piece.
//! - I3: when an executor returns, its stores are ordered before the caller's next operations: each
//!   thread ends with a store fence.

// | file | contents |
// |---|---|
// | `path.rs` | the vector code that the CPU has, and the way into it |
// | `store.rs` | whole lines: loads, stores, hints; the bytes at either end |
// | `lanes.rs` | large pieces |
// | `rows.rs` | small pieces, and plans that the caches hold |
// | `checksum.rs` | copy and hash in one pass |
// | `bytes.rs` | one stretch of bytes, without a plan |
// | `threads.rs` | threads that the caller hands in |

mod bytes;
mod checksum;
mod error;
mod lanes;
mod path;
mod rows;
mod store;
mod threads;

pub(crate) use checksum::SEAL_CHUNK_BYTES;
pub use error::CopyError;
pub use path::Path;
pub use threads::{ScopedThreads, Threads};

use core::num::{NonZeroU32, NonZeroU64};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use kvstrata_core::layout::Layout;
use kvstrata_core::plan::{CopyPlan, Side};

/// Executes copy plans between host regions.
///
/// A plan is fast here if its pieces are large, its source blocks ascend, so that a piece continues where
/// the last one of its layer ended, and its regions are backed by huge pages.
///
/// ```
/// use kvstrata_core::BlockId;
/// use kvstrata_core::layout::{Layout, LayoutConfig, Region};
/// use kvstrata_core::plan::CopyPlan;
/// use kvstrata_ffi::copy::HostCopy;
/// let (from, mut to) = (vec![7; 4 * 100], vec![0; 2 * 100]);
/// let layout = |bytes: &[u8], blocks| {
///     let config = LayoutConfig::new().num_blocks(blocks).page_size(10).inner_dim(10);
///     Layout::fully_contiguous(config, Region::system(bytes.as_ptr().addr() as u64, bytes.len() as u64))
/// };
/// let (src, dst) = (layout(&from, 4)?, layout(&to, 2)?);
/// let plan = CopyPlan::new(&src, &[BlockId(3)], &dst, &[BlockId(1)], .., ..)?;
/// HostCopy::new().copy(&plan, &[&from], &mut [&mut to])?;
/// assert_eq!((to[99], to[100], to[199]), (0, 7, 7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HostCopy {
    path: Path,
    stream_from_bytes: u64,
    share_from_bytes: u64,
}

/// A thread takes some 10 µs to start; this many bytes are copied in that time.
const SHARE_FROM_BYTES: u64 = 256 << 10;

impl HostCopy {
    /// Creates an executor with the best vector code that this CPU has.
    #[must_use]
    pub fn new() -> HostCopy {
        HostCopy::on(Path::best())
    }

    /// Creates an executor with the given vector code.
    ///
    /// # Errors
    /// [`CopyError::Path`]: the CPU does not have it.
    pub fn with_path(path: Path) -> Result<HostCopy, CopyError> {
        if path.is_available() { Ok(HostCopy::on(path)) } else { Err(CopyError::Path { path }) }
    }

    fn on(path: Path) -> HostCopy {
        HostCopy { path, stream_from_bytes: path::last_level_bytes() / 2, share_from_bytes: SHARE_FROM_BYTES }
    }

    /// Sets the plan size, in bytes, from which copies bypass the caches. Default: half the last-level
    /// cache, the size at which source and destination together fill it.
    #[must_use]
    pub fn stream_from_bytes(self, bytes: u64) -> HostCopy {
        HostCopy { stream_from_bytes: bytes, ..self }
    }

    /// Sets the bytes per additional thread. Default: 256 KiB.
    #[must_use]
    pub fn share_from_bytes(self, bytes: u64) -> HostCopy {
        HostCopy { share_from_bytes: bytes.max(1), ..self }
    }

    /// Returns the vector code in use.
    #[must_use]
    pub fn path(&self) -> Path {
        self.path
    }

    /// Copies the plan's bytes.
    ///
    /// # Errors
    /// [`CopyError::NotHost`]: the CPU cannot read and write a region. Nothing was copied.
    ///
    /// # Safety
    /// The regions of the plan's layouts are mapped memory of this process whose provenance is exposed.
    /// The plan's source bytes are initialised. Until this returns, nothing writes the source bytes, and
    /// nothing else reads or writes the destination bytes.
    pub unsafe fn execute(&self, plan: &CopyPlan) -> Result<(), CopyError> {
        check_host(plan)?;
        // SAFETY: the caller's contract; the path is available (I1).
        unsafe { path::run(self.path, plan, self.streams(plan)) };
        Ok(())
    }

    /// Copies the plan's bytes on the caller's threads.
    ///
    /// # Errors
    /// As [`execute`](HostCopy::execute).
    ///
    /// # Safety
    /// As [`execute`](HostCopy::execute).
    pub unsafe fn execute_on(&self, plan: &CopyPlan, threads: &dyn Threads) -> Result<(), CopyError> {
        check_host(plan)?;
        let streams = self.streams(plan);
        let shares = (plan.bytes() / self.share_from_bytes).min(threads.count() as u64);
        let parts: Vec<(CopyPlan, AtomicBool)> =
            parts(plan, shares).into_iter().map(|part| (part, AtomicBool::new(false))).collect();
        let copy = |number: usize| {
            let (part, taken) = &parts[number];
            // An implementation of `Threads` may call twice with one number. Relaxed: taking a part
            // publishes nothing; all is copied when `run` returns, because its threads have ended.
            if !taken.swap(true, Relaxed) {
                // SAFETY: the caller's contract; parts of a plan write different bytes (the plan's I3),
                // and only this call has taken this part; the path is available (I1).
                unsafe { path::run(self.path, part, streams) };
            }
        };
        threads.run(parts.len(), &copy);
        // Copies the parts that `run` left out.
        (0..parts.len()).for_each(copy);
        Ok(())
    }

    /// Copies the plan's bytes and returns their XXH3-64 in the order of [`CopyPlan::pieces`], hashed in
    /// the same pass. If each block's destination is one piece, that is the hash of the destination's
    /// blocks in ascending order.
    ///
    /// # Errors
    /// As [`execute`](HostCopy::execute).
    ///
    /// # Safety
    /// As [`execute`](HostCopy::execute).
    pub unsafe fn execute_with_checksum(&self, plan: &CopyPlan) -> Result<u64, CopyError> {
        check_host(plan)?;
        // SAFETY: the caller's contract; the path is available (I1).
        Ok(unsafe { path::run_with_checksum(self.path, plan, self.streams(plan)) })
    }

    /// Copies between borrowed regions: `src[i]` is region `i` of the source's layout, `dst[i]` of the
    /// destination's.
    ///
    /// # Errors
    /// [`CopyError`]: the CPU cannot read and write a region, or the slices are not where the layouts
    /// say. Nothing was copied.
    pub fn copy(&self, plan: &CopyPlan, src: &[&[u8]], dst: &mut [&mut [u8]]) -> Result<(), CopyError> {
        expose(plan, src, dst)?;
        // SAFETY: the slices are the layouts' regions, borrowed for the call, and all of a plan's bytes
        // lie in regions.
        unsafe { self.execute(plan) }
    }

    /// [`copy`](HostCopy::copy) on the caller's threads.
    ///
    /// # Errors
    /// As [`copy`](HostCopy::copy).
    pub fn copy_on(
        &self,
        plan: &CopyPlan,
        src: &[&[u8]],
        dst: &mut [&mut [u8]],
        threads: &dyn Threads,
    ) -> Result<(), CopyError> {
        expose(plan, src, dst)?;
        // SAFETY: as in `copy`.
        unsafe { self.execute_on(plan, threads) }
    }

    /// [`copy`](HostCopy::copy) with the checksum of
    /// [`execute_with_checksum`](HostCopy::execute_with_checksum).
    ///
    /// # Errors
    /// As [`copy`](HostCopy::copy).
    pub fn copy_with_checksum(
        &self,
        plan: &CopyPlan,
        src: &[&[u8]],
        dst: &mut [&mut [u8]],
    ) -> Result<u64, CopyError> {
        expose(plan, src, dst)?;
        // SAFETY: as in `copy`.
        unsafe { self.execute_with_checksum(plan) }
    }

    fn streams(&self, plan: &CopyPlan) -> bool {
        self.goes_past_caches(plan.bytes())
    }
}

impl Default for HostCopy {
    fn default() -> HostCopy {
        HostCopy::new()
    }
}

/// Even shares of the plan, by blocks if there are enough of them.
fn parts(plan: &CopyPlan, shares: u64) -> Vec<CopyPlan> {
    let blocks = plan.blocks();
    if shares <= 1 {
        return vec![plan.clone()];
    }
    if let Ok(each) = u32::try_from(blocks.div_ceil(shares))
        && let Some(each) = NonZeroU32::new(each)
        && blocks >= shares
    {
        return plan.split_blocks(each).collect();
    }
    let each = plan.bytes().div_ceil(shares);
    plan.split_bytes(NonZeroU64::new(each).unwrap_or(NonZeroU64::MIN)).collect()
}

fn check_host(plan: &CopyPlan) -> Result<(), CopyError> {
    for (side, layout) in [(Side::Source, plan.src()), (Side::Destination, plan.dst())] {
        if let Some((region, of)) = layout.regions().iter().enumerate().find(|(_, of)| !of.kind.is_host()) {
            return Err(CopyError::NotHost { side, region, kind: of.kind });
        }
    }
    Ok(())
}

/// Checks that the slices are the regions, and exposes them, because a plan knows addresses only.
fn expose(plan: &CopyPlan, src: &[&[u8]], dst: &mut [&mut [u8]]) -> Result<(), CopyError> {
    check_slices(
        Side::Source,
        plan.src(),
        src.iter().map(|slice| (slice.as_ptr().expose_provenance(), slice.len())),
    )?;
    let dst = dst.iter_mut().map(|slice| (slice.as_mut_ptr().expose_provenance(), slice.len()));
    check_slices(Side::Destination, plan.dst(), dst)
}

fn check_slices(
    side: Side,
    layout: &Layout,
    slices: impl ExactSizeIterator<Item = (usize, usize)>,
) -> Result<(), CopyError> {
    let regions = layout.regions();
    if slices.len() != regions.len() {
        return Err(CopyError::Slices { side, slices: slices.len(), regions: regions.len() });
    }
    for (number, ((address, bytes), region)) in slices.zip(regions).enumerate() {
        let (address, bytes) = (address as u64, bytes as u64);
        if address != region.address || bytes < region.size_bytes {
            let (needs, size_bytes) = (region.address, region.size_bytes);
            return Err(CopyError::Slice { side, region: number, address, bytes, needs, size_bytes });
        }
    }
    Ok(())
}

//! Copy plans between host regions: ours, memcpy, and the machine's limit.
//!
//! Llama-3-70B on one rank of four: 80 layers of keys and values, pages of 64 tokens, 2 heads of 128,
//! bf16; so 32 KiB a piece, 5 MiB a block. The engine's side is a region a layer,
//! `[2][blocks][64][2][128]`; the tier's is one region, a block in one piece.

use crate::pages::Pages;
use crate::work::Timed;
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, DType, HeadOrder, Layout, LayoutConfig, Region};
use kvstrata_core::plan::CopyPlan;
use kvstrata_ffi::copy::{HostCopy, ScopedThreads};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Blocks that move: 640 MiB, so that no cache helps.
pub const MOVED: u32 = 128;
/// Blocks of the engine.
pub const ENGINE: u32 = 256;

const CONFIG: LayoutConfig = LayoutConfig::new()
    .num_layers(80)
    .outer_dim(2)
    .page_size(64)
    .heads(2, 128)
    .dtype(DType::BF16)
    .alignment(4096);

/// Both sides' memory, huge pages if the system grants them, all touched.
pub struct Memory {
    engine: Pages,
    tier: Pages,
}

/// The direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Engine to tier.
    Out,
    /// Tier to engine.
    In,
}

/// The choice of the engine's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocks {
    /// Some of them, in no order, as in a cache that has run for a while.
    Scattered,
    /// The first ones, in order.
    Ascending,
}

impl Default for Memory {
    fn default() -> Memory {
        let (engine, tier) = (config(ENGINE, HeadOrder::Nhd), config(MOVED, HeadOrder::Nhd));
        let bytes = |arrangement: Arrangement, config: &LayoutConfig| {
            let need = arrangement.needs(config).expect("a valid geometry");
            need.bytes * u64::from(need.count)
        };
        Memory {
            engine: Pages::new(bytes(Arrangement::OuterFirst, &engine) as usize),
            tier: Pages::new(bytes(Arrangement::FullyContiguous, &tier) as usize),
        }
    }
}

impl Memory {
    /// Makes a plan over the whole of the tier's side, with pages that have tokens or heads first.
    pub fn plan(&self, way: Way, blocks: Blocks, tier_order: HeadOrder) -> CopyPlan {
        let (engine_config, tier_config) = (config(ENGINE, HeadOrder::Nhd), config(MOVED, tier_order));
        let need = Arrangement::OuterFirst.needs(&engine_config).expect("a valid geometry");
        let base = self.engine.address();
        let regions: Vec<Region> = (0..u64::from(need.count))
            .map(|layer| Region::system(base + layer * need.bytes, need.bytes))
            .collect();
        let engine = Layout::new(engine_config, Arrangement::OuterFirst, &regions).expect("it fits");
        let tier = Region::system(self.tier.address(), self.tier.bytes() as u64);
        let tier = Layout::fully_contiguous(tier_config, tier).expect("it fits");
        let of_engine = match blocks {
            Blocks::Scattered => scattered(ENGINE),
            Blocks::Ascending => (0..ENGINE).map(BlockId).collect(),
        };
        let of_engine = &of_engine[..MOVED as usize];
        let of_tier: Vec<BlockId> = (0..MOVED).map(BlockId).collect();
        let plan = match way {
            Way::Out => CopyPlan::new(&engine, of_engine, &tier, &of_tier, .., ..),
            Way::In => CopyPlan::new(&tier, &of_tier, &engine, of_engine, .., ..),
        };
        plan.expect("the sides are alike")
    }

    /// Returns the limit: one stretch copied to another.
    pub fn limit(&self) -> Limit<'_> {
        Limit { memory: self }
    }
}

fn config(blocks: u32, order: HeadOrder) -> LayoutConfig {
    CONFIG.num_blocks(blocks).head_order(order)
}

/// Returns all of so many blocks, shuffled by a fixed sequence.
pub fn scattered(blocks: u32) -> Vec<BlockId> {
    let mut all: Vec<BlockId> = (0..blocks).map(BlockId).collect();
    for i in (1..all.len()).rev() {
        all.swap(i, crate::inputs::mix(i as u64) as usize % (i + 1));
    }
    all
}

/// The way in which a plan is executed.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// libc's memcpy for each piece.
    Memcpy,
    /// A plain loop of non-temporal stores for each piece.
    PlainStream,
    /// No copy: the source is read, and nothing is written.
    ReadAlone,
    /// [`HostCopy`] on one thread.
    Ours(HostCopy),
    /// The same with its checksum.
    Checked(HostCopy),
    /// On so many threads, timed by the wall.
    Threads(HostCopy, usize),
}

/// A plan with its way of execution.
pub struct Copy<'m> {
    /// The plan.
    pub plan: &'m CopyPlan,
    /// Its way of execution.
    pub how: How,
    /// The memory of the plan's regions.
    pub memory: &'m Memory,
}

impl Timed for Copy<'_> {
    fn items(&self) -> u64 {
        self.plan.bytes()
    }

    fn time(&mut self, runs: u64) -> Duration {
        let (wall, own) = (Instant::now(), crate::clock::thread_time());
        for _ in 0..runs {
            self.once();
        }
        match self.how {
            How::Threads(..) => wall.elapsed(),
            _ => crate::clock::thread_time() - own,
        }
    }
}

impl Copy<'_> {
    /// Copies once. The plan's regions are the memory's, which lives, and no other code has its address.
    fn once(&self) {
        let plan = black_box(self.plan);
        match self.how {
            How::Memcpy => plan.pieces().for_each(|piece| {
                // SAFETY: a piece of the plan.
                unsafe { memcpy(piece.dst, piece.src, piece.bytes) };
            }),
            How::PlainStream => plan.pieces().for_each(|piece| {
                // SAFETY: a piece of the plan, of whole pages.
                unsafe { stream(piece.dst, piece.src, piece.bytes) };
            }),
            How::ReadAlone => plan.pieces().for_each(|piece| {
                // SAFETY: a piece of the plan, of whole pages.
                black_box(unsafe { read(piece.src, piece.bytes) });
            }),
            How::Ours(copy) => {
                // SAFETY: the regions are the memory's.
                unsafe { copy.execute(plan) }.expect("host memory");
            }
            How::Checked(copy) => {
                // SAFETY: the regions are the memory's.
                let hash = unsafe { copy.execute_with_checksum(plan) };
                black_box(hash.expect("host memory"));
            }
            How::Threads(copy, threads) => {
                // SAFETY: the regions are the memory's.
                unsafe { copy.execute_on(plan, &ScopedThreads(threads)) }.expect("host memory");
            }
        }
    }
}

/// # Safety
/// Both stretches are mapped and do not overlap.
unsafe fn memcpy(dst: u64, src: u64, bytes: u64) {
    let to = std::ptr::with_exposed_provenance_mut(dst as usize);
    let from = std::ptr::with_exposed_provenance(src as usize);
    // SAFETY: the caller's contract.
    unsafe { libc::memcpy(to, from, bytes as usize) };
}

/// Reads all of a stretch.
///
/// # Safety
/// It is mapped, and a multiple of 8 bytes.
unsafe fn read(src: u64, bytes: u64) -> u64 {
    let from: *const u64 = std::ptr::with_exposed_provenance(src as usize);
    // SAFETY: the caller's contract.
    let words = unsafe { std::slice::from_raw_parts(from, bytes as usize / 8) };
    words.iter().fold(0, |sum, word| sum ^ word)
}

/// The engine's memory read in stretches of one size, in no order, with nothing written: an upper bound
/// for the speed of scattered copies, unless they read several stretches at once.
pub struct Reads<'m> {
    memory: &'m Memory,
    bytes: u64,
    order: Vec<BlockId>,
}

impl Memory {
    /// Returns reads of so many bytes each; all in one if that is more than the memory has.
    pub fn reads(&self, bytes: u64) -> Reads<'_> {
        let all = self.engine.bytes() as u64;
        let bytes = bytes.min(all);
        Reads { memory: self, bytes, order: scattered((all / bytes) as u32) }
    }
}

impl Timed for Reads<'_> {
    fn items(&self) -> u64 {
        self.order.len() as u64 * self.bytes
    }

    fn time(&mut self, runs: u64) -> Duration {
        let own = crate::clock::thread_time();
        for _ in 0..runs {
            for stretch in &self.order {
                let src = self.memory.engine.address() + u64::from(stretch.0) * self.bytes;
                // SAFETY: within the mapping; all its pages were touched.
                black_box(unsafe { read(src, self.bytes) });
            }
        }
        crate::clock::thread_time() - own
    }
}

/// One stretch of the engine's memory to the tier's, with non-temporal stores and hints.
pub struct Limit<'m> {
    memory: &'m Memory,
}

impl Timed for Limit<'_> {
    fn items(&self) -> u64 {
        self.memory.tier.bytes() as u64
    }

    fn time(&mut self, runs: u64) -> Duration {
        let own = crate::clock::thread_time();
        for _ in 0..runs {
            let (dst, src) = (self.memory.tier.address(), self.memory.engine.address());
            // SAFETY: both mappings have this length, and no other code has their addresses.
            unsafe { stream(dst, src, self.items()) };
        }
        crate::clock::thread_time() - own
    }
}

/// Copies whole lines, aligned at the destination, by the best non-temporal stores of the CPU; by memcpy
/// if it has none.
///
/// # Safety
/// Both stretches are mapped and do not overlap; `dst` and `bytes` are multiples of 256.
unsafe fn stream(dst: u64, src: u64, bytes: u64) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU has it; the rest is the caller's contract.
        return unsafe { stream_avx512(dst, src, bytes) };
    }
    // SAFETY: the caller's contract.
    unsafe { memcpy(dst, src, bytes) };
}

/// # Safety
/// The CPU has AVX-512F; both stretches are mapped and do not overlap; `dst` and `bytes` are multiples
/// of 256.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_avx512(dst: u64, src: u64, bytes: u64) {
    use std::arch::x86_64::{
        __m512i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm512_loadu_si512, _mm512_setzero_si512,
        _mm512_stream_si512,
    };
    let to = std::ptr::with_exposed_provenance_mut::<u8>(dst as usize);
    let from = std::ptr::with_exposed_provenance::<u8>(src as usize);
    for at in (0..bytes as usize).step_by(256) {
        let mut held: [__m512i; 4] = [_mm512_setzero_si512(); 4];
        for (line, vector) in held.iter_mut().enumerate() {
            let line = from.wrapping_add(at + 64 * line);
            _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(2048).cast());
            // SAFETY: within the source.
            *vector = unsafe { _mm512_loadu_si512(line.cast()) };
        }
        for (line, vector) in held.iter().enumerate() {
            // SAFETY: within the destination, aligned.
            unsafe { _mm512_stream_si512(to.wrapping_add(at + 64 * line).cast(), *vector) };
        }
    }
    _mm_sfence();
}

//! The kernels of the crate `kvbm-kernels` 1.6.1 (NVIDIA, Apache-2.0), launched as its own code launches
//! them. None of its code is in this repository: `benches/gpu/run --bundle` fetches the crate and has
//! nvcc compile it to a library, which is loaded here.
//!
//! Its tables of pointers are in device memory before the first turn. Its own callers make and upload
//! them on each call, and wait; these costs are not measured, to its advantage.

use super::Failure;
use super::memory::Ferry;
use super::streams::{Lane, Stream};
use core::ffi::{CStr, c_int, c_void};
use kvstrata_core::BlockId;
use kvstrata_core::layout::Layout;
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{Batch, CudaDevice, DeviceStorage, Transfer, TransferQueue};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// The library's name in the bundle.
pub const LIBRARY: &str = "libkvbm_kernels.so";
/// The crate's tags for bfloat16 and NHD.
const BF16: c_int = 1;
const NHD: c_int = 0;

/// Tables of addresses, blocks, their counts and sizes, type, order, stream.
type Permute = unsafe extern "C" fn(
    u64,
    u64,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    c_int,
    c_int,
    *mut c_void,
) -> c_int;
/// Tables of addresses, bytes of each, their number, stream.
type Copy = unsafe extern "C" fn(u64, u64, usize, c_int, *mut c_void) -> c_int;

/// The crate's launchers.
#[derive(Clone, Copy)]
pub struct Kvbm {
    to_universal: Permute,
    from_universal: Permute,
    copy: Copy,
}

/// The tables that its kernels read in device memory, for the blocks of a lane.
pub struct Tables {
    /// For each (block, layer, outer): the engine's addresses, and the tier's in the same order.
    engine: Arc<DeviceStorage>,
    tier: Arc<DeviceStorage>,
    /// For each block.
    universal: Arc<DeviceStorage>,
    /// Blocks, heads, layers, outer dimension, tokens, elements a head.
    shape: [usize; 6],
}

impl Kvbm {
    /// Loads the library.
    ///
    /// # Errors
    /// It is not in the bundle, or not the expected one.
    pub fn open(bundle: &Path) -> Result<Kvbm, Failure> {
        let path = bundle.join(LIBRARY);
        if !path.is_file() {
            return Err(format!("{LIBRARY} is not in the bundle, which was made without nvcc").into());
        }
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a library that the bundle was made with; its initialisers are nvcc's.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            return Err(format!("{} does not load", path.display()).into());
        }
        let find = |name: &CStr| {
            // SAFETY: a library that is never unloaded.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if found.is_null() {
                Err(format!("{LIBRARY} has no {}", name.to_string_lossy()))
            } else {
                Ok(found)
            }
        };
        let permute = |name: &CStr| {
            // SAFETY: both have this type in the crate's `tensor_kernels.rs`; pointers to tables are
            // passed as the numbers that they are.
            find(name).map(|found| unsafe { core::mem::transmute::<*mut c_void, Permute>(found) })
        };
        Ok(Kvbm {
            to_universal: permute(c"kvbm_kernels_launch_universal_from_block")?,
            from_universal: permute(c"kvbm_kernels_launch_block_from_universal")?,
            // SAFETY: as above.
            copy: unsafe {
                core::mem::transmute::<*mut c_void, Copy>(find(c"kvbm_kernels_launch_vectorized_copy")?)
            },
        })
    }

    /// Copies engine to tier, unchanged or to universal blocks.
    #[must_use]
    pub fn gather<'a>(&self, queue: &'a TransferQueue, tables: &'a Tables, permutes: bool) -> Stream<'a> {
        self.stream(queue, tables, permutes.then_some(self.to_universal), [&tables.engine, &tables.tier])
    }

    /// Copies tier to engine.
    #[must_use]
    pub fn scatter<'a>(&self, queue: &'a TransferQueue, tables: &'a Tables, permutes: bool) -> Stream<'a> {
        self.stream(queue, tables, permutes.then_some(self.from_universal), [&tables.tier, &tables.engine])
    }

    fn stream<'a>(
        &self,
        queue: &'a TransferQueue,
        tables: &'a Tables,
        permute: Option<Permute>,
        [from, to]: [&'a Arc<DeviceStorage>; 2],
    ) -> Stream<'a> {
        let copy = self.copy;
        let [blocks, heads, layers, outers, tokens, size] = tables.shape;
        let launch = move |stream: *mut c_void| match permute {
            // SAFETY: the tables have the sizes that are passed, in memory that the caller's sides hold
            // until the stream has answered.
            Some(permute) => unsafe {
                permute(
                    tables.universal.base_address(),
                    tables.engine.base_address(),
                    blocks,
                    heads,
                    layers,
                    outers,
                    tokens,
                    size,
                    BF16,
                    NHD,
                    stream,
                )
            },
            // SAFETY: as above.
            None => unsafe {
                copy(
                    from.base_address(),
                    to.base_address(),
                    tokens * heads * size * 2,
                    (blocks * layers * outers) as c_int,
                    stream,
                )
            },
        };
        let act = move |_, batch: Batch| -> Result<Transfer, Failure> {
            let work = queue.begin(batch).map_err(|rejected| rejected.error)?;
            let code = queue.device().bound(|| launch(queue.stream().handle()))?;
            let transfer = work.finish().map_err(|rejected| rejected.error)?;
            if code == 0 { Ok(transfer) } else { Err(format!("CUDA answered {code}").into()) }
        };
        Stream::new(4, Box::new(act))
    }
}

impl Tables {
    /// Makes the tables for these layouts of the engine, of the tier, and of the tier with universal blocks.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn new(
        ferry: &Ferry,
        device: &Arc<CudaDevice>,
        [engine, tier, universal]: [&Layout; 3],
        lane: &Lane,
    ) -> Result<Tables, Failure> {
        let config = engine.config();
        let pieces = |layout: &Layout, blocks: &[BlockId]| -> Result<Vec<u64>, Failure> {
            let mut all = Vec::new();
            for block in blocks {
                for layer in 0..config.num_layers {
                    for outer in 0..config.outer_dim {
                        all.push(layout.address([block.0, layer, outer, 0, 0])?);
                    }
                }
            }
            Ok(all)
        };
        let whole = |layout: &Layout, blocks: &[BlockId]| -> Result<Vec<u64>, Failure> {
            blocks.iter().map(|block| Ok(layout.address([block.0, 0, 0, 0, 0])?)).collect()
        };
        let place = |addresses: Vec<u64>| -> Result<Arc<DeviceStorage>, Failure> {
            let bytes: Vec<u8> = addresses.into_iter().flat_map(u64::to_le_bytes).collect();
            let storage = DeviceStorage::allocate(device, bytes.len() as u64)?;
            ferry.put(&storage, 0, &bytes)?;
            Ok(storage)
        };
        let counts =
            [config.num_heads, config.num_layers, config.outer_dim, config.page_size, config.head_size];
        let [heads, layers, outers, tokens, size] = counts.map(|count| count as usize);
        Ok(Tables {
            engine: place(pieces(engine, &lane.src)?)?,
            tier: place(pieces(tier, &lane.dst)?)?,
            universal: place(whole(universal, &lane.dst)?)?,
            shape: [lane.src.len(), heads, layers, outers, tokens, size],
        })
    }
}

//! A device of the double with an engine's tensors, pinned host memory, and a mover between them. Tests
//! reach the device's bytes past all of our code, by the layout's own addresses.

use kvstrata::movers::{CudaMover, CudaMoverOptions};
use kvstrata::transfer::{Copies, Copy, DeviceMover, HostMemory, HostSide, Landed, Landing, Lands, Token};
use kvstrata_core::BlockId;
use kvstrata_core::layout::{Arrangement, Layout, LayoutConfig, Region};
use kvstrata_core::storage::Storage;
use kvstrata_core::storage::StorageKind;
use kvstrata_cuda_double::Double;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::cuda::{
    CopyOptions, CudaCopy, CudaDevice, CudaDriver, CudaError, DeviceStorage, PinOptions, PinnedStorage, Place,
};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub const BLOCKS: u32 = 8;
pub const LAYERS: u32 = 3;
/// K and V of two tokens of two heads of 32 elements, a byte each.
pub const LAYER_BYTES: usize = 2 * 2 * 2 * 32;
pub const BLOCK_BYTES: usize = LAYERS as usize * LAYER_BYTES;

pub fn config() -> LayoutConfig {
    LayoutConfig::new().num_blocks(BLOCKS).num_layers(LAYERS).outer_dim(2).page_size(2).heads(2, 32)
}

/// Fields drop in this order: the double comes last, and checks what is left.
pub struct Ground {
    pub mover: Option<CudaMover>,
    pub memory: Arc<HostMemory>,
    pub pinned: Arc<PinnedStorage>,
    pub layout: Layout,
    pub tensors: Vec<Arc<DeviceStorage>>,
    pub device: Arc<CudaDevice>,
    pub double: Double,
}

/// Copies by the copy engine alone: these tests have no kernels, and routes do not matter here.
pub fn copy_of(device: &Arc<CudaDevice>) -> CudaCopy {
    let none = CudaError::NoKernels { why: "as a test".to_owned() };
    CudaCopy::with(device, Err(none), CopyOptions::new())
}

/// Pinned host memory for layers of these sizes.
pub fn host(device: &Arc<CudaDevice>, layers: &[usize]) -> (Arc<HostMemory>, Arc<PinnedStorage>) {
    let arena = HostArena::new(BLOCKS as usize, layers.iter().sum()).expect("an arena");
    let pinned = PinnedStorage::register(device, Arc::clone(&arena), PinOptions::new(), &mut |_, _| {})
        .expect("pinned");
    (HostMemory::over(arena, layers).expect("layers"), pinned)
}

impl Ground {
    pub fn new(options: CudaMoverOptions) -> Ground {
        Ground::seeded(0, options)
    }

    /// The seed decides the order between streams.
    pub fn seeded(seed: u64, options: CudaMoverOptions) -> Ground {
        let double = Double::new();
        double.seed(seed);
        let device = CudaDevice::open(&CudaDriver::load().expect("the double"), 0).expect("a device");
        let size_bytes = Arrangement::OuterFirst.needs(&config()).expect("small").bytes;
        let tensors: Vec<_> =
            (0..LAYERS).map(|_| DeviceStorage::allocate(&device, size_bytes).expect("memory")).collect();
        let kind = StorageKind::Device { ordinal: 0 };
        let regions: Vec<_> =
            tensors.iter().map(|of| Region { address: of.base_address(), size_bytes, kind }).collect();
        let layout = Layout::layer_separated(config(), Arrangement::OuterFirst, &regions).expect("a layout");
        let (memory, pinned) = host(&device, &[LAYER_BYTES; LAYERS as usize]);
        let place = tensors.iter().map(|of| of.range(0, size_bytes).expect("all")).collect();
        let ends = (Arc::clone(&memory), Arc::clone(&pinned));
        let mover = CudaMover::new(copy_of(&device), (&layout, Place::Device(place)), ends, options);
        let mover = Some(mover.expect("a mover"));
        let ground = Ground { mover, memory, pinned, layout, tensors, device, double };
        (0..BLOCKS).for_each(|block| ground.poke(block, &pattern(u64::from(block), BLOCK_BYTES)));
        ground
    }

    pub fn mover(&self) -> &CudaMover {
        self.mover.as_ref().expect("there until it is dropped")
    }

    /// Each row of a device block: its address, and its range in the block as the host has it.
    fn rows(&self, block: u32) -> impl Iterator<Item = (u64, Range<usize>)> {
        let [_, layers, outers, tokens, heads] = config().shape();
        let indices = (0..layers).flat_map(move |layer| {
            let rows = (0..outers)
                .flat_map(move |outer| (0..tokens).flat_map(move |t| (0..heads).map(move |h| [outer, t, h])));
            rows.map(move |[outer, token, head]| [block, layer, outer, token, head])
        });
        let bytes = self.layout.row_bytes() as usize;
        indices.enumerate().map(move |(at, index)| {
            (self.layout.address(index).expect("there is one"), at * bytes..(at + 1) * bytes)
        })
    }

    /// A block of the device at rest.
    pub fn peek(&self, block: u32) -> Vec<u8> {
        self.rows(block).flat_map(|(address, row)| self.double.peek(address, row.len())).collect()
    }

    /// Overwrites a block.
    pub fn poke(&self, block: u32, bytes: &[u8]) {
        for (address, row) in self.rows(block) {
            let place = self.double.translator()(address, row.len() as u64).cast::<u8>();
            assert!(!place.is_null(), "{address:#x} is in no allocation");
            // SAFETY: inside an allocation of the double's, of as many bytes, which nothing
            // reaches while a test pokes at rest.
            unsafe { core::ptr::copy_nonoverlapping(bytes[row.clone()].as_ptr(), place, row.len()) };
        }
    }

    /// A copy from a device's block to a host's.
    pub fn down(&self, device: u32, host: u32, layers: Range<u32>) -> Copy {
        let held = HostSide::Write(self.memory.write(host).expect("free"));
        Copy::new(Token(u64::from(device)), BlockId(device), held, layers, false)
    }

    /// A copy from a host's block to a device's.
    pub fn up(&self, host: u32, device: u32, layers: Range<u32>, verify: bool) -> Copy {
        let held = HostSide::Read(self.memory.read(host).expect("not written"));
        Copy::new(Token(u64::from(device)), BlockId(device), held, layers, verify)
    }

    /// A device's block to be overwritten.
    pub fn zeros(&self, device: u32) -> Copy {
        Copy::new(Token(u64::from(device)), BlockId(device), HostSide::Zeros, 0..LAYERS, false)
    }

    pub fn start(&self, list: Vec<Copy>, heard: &Arc<Heard>) {
        self.mover().start(Copies::new(list, Landing::new(Arc::<Heard>::clone(heard))));
    }

    /// Starts a list, and waits for its answer.
    pub fn carry_out(&self, list: Vec<Copy>) -> Vec<Copy> {
        let heard = Heard::new();
        self.start(list, &heard);
        heard.wait(1).pop().expect("one answer")
    }

    /// Fills a host's block, and seals it.
    pub fn seal(&self, host: u32, bytes: &[u8]) {
        let mut held = self.memory.write(host).expect("free");
        held.copy_from_slice(bytes);
        for layer in 0..LAYERS {
            let of = self.memory.layer(layer).expect("there is one");
            self.memory.seal(&held, layer, HostMemory::sum_of(&bytes[of]));
        }
    }

    pub fn host(&self, block: u32) -> Vec<u8> {
        self.memory.read(block).expect("not written").to_vec()
    }

    /// Ends a test: all is given back, and nothing was misused.
    pub fn finish(mut self) {
        drop(self.mover.take());
        let Ground { memory, pinned, layout, tensors, device, double, .. } = self;
        drop((memory, pinned, layout, tensors, device));
        until("the release", || double.left().contexts == 0);
        // Marks for the engine, which no test waits for.
        double.idle();
        double.finish();
    }

    /// Ends a test that breaks the device.
    pub fn finish_broken(mut self) {
        drop(self.mover.take());
        let Ground { memory, pinned, layout, tensors, device, double, .. } = self;
        drop((memory, pinned, layout, tensors, device));
        assert_eq!(double.misuse(), (0, String::new()));
        double.reset();
    }
}

/// The answers, list by list.
#[derive(Default)]
pub struct Heard {
    lists: Mutex<Vec<Vec<Copy>>>,
    came: Condvar,
}

impl Heard {
    pub fn new() -> Arc<Heard> {
        Arc::default()
    }

    /// The answers, once there are so many.
    pub fn wait(&self, answers: usize) -> Vec<Vec<Copy>> {
        let lists = self.lists.lock().expect("no panic under it");
        let patience = Duration::from_secs(60);
        let (mut lists, waited) =
            self.came.wait_timeout_while(lists, patience, |lists| lists.len() < answers).expect("no panic");
        assert!(!waited.timed_out(), "{} of {answers} answers came", lists.len());
        assert_eq!(lists.len(), answers, "answered once");
        std::mem::take(&mut *lists)
    }

    pub fn answers(&self) -> usize {
        self.lists.lock().expect("no panic under it").len()
    }
}

impl Lands for Heard {
    fn landed(&self, landed: Landed) {
        let Landed::Copies(list) = landed else { panic!("{landed:?}") };
        self.lists.lock().expect("no panic under it").push(list);
        self.came.notify_all();
    }
}

/// Bytes that differ from seed to seed and from place to place.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|at| ((at + 1 + seed * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8)
        .collect()
}

/// Waits for another thread.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !done() {
        assert!(begun.elapsed().as_secs() < 20, "{what} does not happen");
        std::thread::yield_now();
    }
}

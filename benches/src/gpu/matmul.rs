//! A loop of bf16 matmuls on tensor cores, which stands for a model: NVIDIA's on a machine with
//! `libcublasLt`, else our own (`benches/gpu/matmul.cu`), so that the figure needs no library.

use super::cublas::CublasLt;
use super::memory::Ferry;
use super::{Bench, DEADLINE, Failure};
use kvstrata_core::storage::Storage;
use kvstrata_ffi::cuda::{
    Batch, CudaFunction, CudaModule, DeviceStorage, Held, Purpose, QueueOptions, TransferQueue,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The image's name in the bundle.
pub const IMAGE: &str = "matmul.fatbin";
/// Its kernel.
pub const KERNEL: &str = "kvstrata_bench_matmul";
/// Rows and columns of C that a CTA computes, and its threads: `matmul.cu` has the same.
const TILE: u32 = 128;
const THREADS: u32 = 256;
/// Both bytes of each element: 0.0115.
const FILL: u8 = 0x3C;

/// The arguments of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// n × n, row by row, bfloat16.
    pub a: u64,
    /// The same.
    pub b: u64,
    /// n × n, row by row, binary32.
    pub c: u64,
    /// A multiple of the tile.
    pub n: u32,
    /// CTAs of a row of C.
    pub tiles: u32,
}

/// The loop.
pub struct Matmul {
    multiplier: Multiplier,
    queue: TransferQueue,
    matrices: Arc<DeviceStorage>,
    /// Rows of each matrix.
    pub n: u32,
    /// Matmuls of a loop.
    pub times: u32,
}

enum Multiplier {
    Own(CudaFunction),
    Library(CublasLt),
}

impl Matmul {
    /// Takes the library's matmul, or our own with the reason.
    ///
    /// # Errors
    /// There is neither.
    pub fn new(bench: &Bench, why: &mut Vec<String>) -> Result<Matmul, Failure> {
        let (n, ..) = bench.scale.matmul;
        let library = CublasLt::open(&bench.device, n).and_then(|library| {
            let matmul = Matmul::with(bench, Multiplier::Library(library))?;
            matmul.check(bench).map(|()| matmul)
        });
        library.or_else(|error| {
            why.push(format!("cuBLASLt: {error}; the matmul is our own"));
            let matmul = Matmul::with(bench, Multiplier::Own(own(bench)?))?;
            matmul.check(bench).map(|()| matmul)
        })
    }

    fn with(bench: &Bench, multiplier: Multiplier) -> Result<Matmul, Failure> {
        let (n, times, _) = bench.scale.matmul;
        let bytes = 8 * u64::from(n) * u64::from(n);
        let matrices = DeviceStorage::allocate(&bench.device, bytes)?;
        let queue = TransferQueue::new(&bench.device, Purpose::Staging, QueueOptions::new())?;
        let mut batch = Batch::new();
        let all = batch.device(matrices.range(0, bytes)?);
        let mut work = queue.begin(batch).map_err(|rejected| rejected.error)?;
        work.fill((all, 0), bytes, FILL);
        let filled = work.finish().map_err(|rejected| rejected.error)?.wait_for(DEADLINE);
        filled?.release().for_each(drop::<Held>);
        Ok(Matmul { multiplier, queue, matrices, n, times })
    }

    /// Returns the name of the implementation.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.multiplier {
            Multiplier::Own(_) => "our own",
            Multiplier::Library(_) => "cuBLASLt's",
        }
    }

    /// Checks the matrices' product: a loop that computes nothing would not be slowed down by a copy.
    fn check(&self, bench: &Bench) -> Result<(), Failure> {
        self.run()?;
        let (n, elements) = (f64::from(self.n), u64::from(self.n) * u64::from(self.n));
        let element = f64::from(f32::from_bits(u32::from_ne_bytes([0, 0, FILL, FILL])));
        let wanted = n * element * element;
        let ferry = Ferry::new(&bench.device, 4096)?;
        for at in [0, elements / 2 + 1, elements - 1] {
            let bytes = ferry.get(&self.matrices, 4 * (elements + at), 4)?;
            let found = f32::from_ne_bytes(bytes.as_slice().try_into()?);
            if (f64::from(found) / wanted - 1.0).abs() > 1e-3 {
                return Err(format!("{} matmul: element {at} is {found}, not {wanted}", self.name()).into());
            }
        }
        Ok(())
    }

    /// Runs the loop and returns its time.
    ///
    /// # Errors
    /// An error of the driver.
    pub fn run(&self) -> Result<Duration, Failure> {
        let half = 2 * u64::from(self.n) * u64::from(self.n);
        let (a, tiles) = (self.matrices.base_address(), self.n.div_ceil(TILE));
        let [a, b, c] = [a, a + half, a + 2 * half];
        let mut batch = Batch::new();
        batch.device(self.matrices.range(0, self.matrices.size_bytes())?);
        let begun = Instant::now();
        let mut work = self.queue.begin(batch).map_err(|rejected| rejected.error)?;
        let queued = match &self.multiplier {
            Multiplier::Own(function) => {
                let arguments = Arguments { a, b, c, n: self.n, tiles };
                for _ in 0..self.times {
                    // SAFETY: the kernel takes `Arguments`; it reads and writes the matrices, which the
                    // batch holds.
                    unsafe { work.launch(function, tiles * tiles, THREADS, &arguments) };
                }
                Ok(())
            }
            Multiplier::Library(library) => {
                let stream = self.queue.stream().handle();
                self.queue.device().bound(|| {
                    // SAFETY: the matrices are of the library's sizes, and the batch holds them.
                    (0..self.times).try_for_each(|_| unsafe { library.multiply([a, b, c], stream) })
                })?
            }
        };
        let ended = work.finish().map_err(|rejected| rejected.error)?.wait_for(DEADLINE);
        queued?;
        ended?;
        Ok(begun.elapsed())
    }
}

/// Loads the kernel from the bundle.
fn own(bench: &Bench) -> Result<CudaFunction, Failure> {
    let path = bench.bundle.as_ref().ok_or("no bundle, and so no matmul of our own")?.join(IMAGE);
    let image = std::fs::read(&path).map_err(|error| {
        format!("{}: {error}; `benches/gpu/run --bundle` makes it where there is an nvcc", path.display())
    })?;
    // SAFETY: the image is whole, as nvcc made it.
    let module = unsafe { CudaModule::load(&bench.device, &image) }?;
    Ok(module.function(KERNEL)?)
}

//! Whether cuFile moves the right bytes between a file and device memory here, and how fast:
//! `cargo run --release -p kvstrata-ffi --example gds_rate -- [FOLDER] [MIB] [BLOCK_KIB] [THREADS] [direct|compat]`.
//! First each block is written, read back and compared, then both directions are timed over device memory that is
//! registered. Exits with 77 and a line `SKIP gds: …` where cuFile or a device is missing; `benches/gpu/gds` runs it.

mod device;

use device::{Allocation, Cuda};
use kvstrata_ffi::disk::Pending;
use kvstrata_ffi::gds::{DeviceRange, GdsBuffer, GdsDriver, GdsFile, GdsOptions, TransferError};
use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// What differs in each byte of each block.
fn pattern(slot: usize, block: &mut [u8]) {
    for (at, word) in block.chunks_exact_mut(8).enumerate() {
        let value = (slot as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ (at as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
        word.copy_from_slice(&value.to_le_bytes());
    }
}

struct Bench {
    file: GdsFile,
    buffer: Arc<GdsBuffer>,
    memory: Arc<Allocation>,
    block_bytes: usize,
    slots: usize,
    depth: usize,
}

/// A transfer: `read` or `write` of a file, the device's bytes, the place in the file.
type Move = fn(&GdsFile, DeviceRange, u64) -> Pending<DeviceRange, TransferError>;

impl Bench {
    /// Every slot in one direction, `depth` at a time: GB/s.
    fn pass(&self, transfer: Move) -> Result<f64, Box<dyn Error>> {
        let start = Instant::now();
        let mut under_way = VecDeque::new();
        for slot in 0..self.slots {
            if under_way.len() == self.depth {
                drop(under_way.pop_front().map(Pending::wait).transpose()?);
            }
            let place = slot % self.depth * self.block_bytes;
            let range = self.buffer.range(place, self.block_bytes)?;
            under_way.push_back(transfer(&self.file, range, (slot * self.block_bytes) as u64));
        }
        under_way.into_iter().try_for_each(|pending| pending.wait().map(drop))?;
        Ok((self.slots * self.block_bytes) as f64 / start.elapsed().as_secs_f64() / 1e9)
    }

    /// Writes what differs in every slot, reads all of it back: blocks that came back wrong.
    fn check(&self) -> Result<usize, Box<dyn Error>> {
        let mut block = vec![0; self.block_bytes];
        let mut expected = vec![0; self.block_bytes];
        let range = || self.buffer.range(0, self.block_bytes);
        for slot in 0..self.slots {
            pattern(slot, &mut block);
            self.memory.copy_in(0, &block)?;
            self.file.write(range()?, (slot * self.block_bytes) as u64).wait()?;
        }
        let mut wrong = 0;
        for slot in 0..self.slots {
            self.memory.copy_in(0, &vec![0xEE; self.block_bytes])?;
            self.file.read(range()?, (slot * self.block_bytes) as u64).wait()?;
            self.memory.copy_out(0, &mut block)?;
            pattern(slot, &mut expected);
            wrong += usize::from(block != expected);
        }
        Ok(wrong)
    }
}

/// A file whose name goes when this does, not before: cuFile opens it again by name.
struct Scratch(String);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing else can be done about it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A file with O_DIRECT, every byte of it written.
fn scratch(folder: &str, bytes: usize) -> std::io::Result<(Scratch, Arc<File>)> {
    let path = format!("{folder}/kvstrata-gds-rate-{}", std::process::id());
    let mut file = File::create_new(&path)?;
    let scratch = Scratch(path);
    let zeros = vec![0; 1 << 20];
    (0..bytes.div_ceil(zeros.len())).try_for_each(|_| file.write_all(&zeros))?;
    file.sync_all()?;
    let direct = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(&scratch.0)?;
    Ok((scratch, Arc::new(direct)))
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| ".".to_owned());
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse::<usize>());
    let (mib, block_kib, threads) = (number(1024)?, number(1024)?, number(8)?);
    let compat = arguments.next().is_some_and(|word| word == "compat");
    let (block_bytes, depth) = (block_kib << 10, 2 * threads);
    let options = GdsOptions::new(0).threads(threads).queue(depth).allow_compat(compat);
    let opened = GdsDriver::open(options).map_err(|error| error.to_string());
    let (driver, cuda) = match opened.and_then(|driver| Ok((driver, Cuda::open(0)?))) {
        Ok(opened) => opened,
        Err(why) => {
            println!("SKIP gds: {why}");
            return Ok(ExitCode::from(77));
        }
    };
    let slots = (mib << 20) / block_bytes;
    let (_scratch, file) = scratch(&folder, slots * block_bytes)?;
    let file = GdsFile::register(&driver, file, options)?;
    let memory = cuda.allocate(depth * block_bytes)?;
    let buffer = GdsBuffer::register(&driver, memory.memory())?;
    let bench = Bench { file, buffer, memory, block_bytes, slots, depth };
    println!("{}; {mib} MiB in blocks of {block_kib} KiB, {threads} threads, {folder}", driver.describe());
    let wrong = bench.check()?;
    println!("  check {slots} blocks written, read back and compared: {wrong} wrong");
    println!("  write {:8.2} GB/s", bench.pass(GdsFile::write)?);
    println!("  read  {:8.2} GB/s", bench.pass(GdsFile::read)?);
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

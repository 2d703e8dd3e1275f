//! Checks that a volume moves the right bytes between its file and device memory by cuFile on this
//! machine, and measures how fast:
//!
//! ```sh
//! cargo run --release -p kvstrata-ffi --example gds_rate -- \
//!     [FOLDER] [MIB] [BLOCK_KIB] [THREADS] [direct|compat]
//! ```
//!
//! First each block is written, read back and compared. Then both directions are timed over
//! registered device memory. Nothing is summed, since there is no kernel for that yet: seals are made
//! up, and the volume does not verify reads. Exits with 77 and a line `SKIP gds: …` without cuFile or
//! a device; `benches/gpu/gds` runs it.

mod device;

use device::{Allocation, Cuda};
use kvstrata_core::SequenceHash;
use kvstrata_ffi::disk::{Name, OwnerId, Pending, Urgency, Volume, VolumeOptions};
use kvstrata_ffi::gds::{DeviceRange, DeviceSums, GdsBuffer, GdsDriver, GdsOptions};
use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Sums nothing: the time of summing is not measured here.
struct Unsummed;

impl DeviceSums for Unsummed {
    fn sum(&self, _payload: &DeviceRange) -> Result<u64, i32> {
        Ok(0)
    }
}

/// Fills a block with a pattern that differs in each word of each block.
fn pattern(slot: usize, block: &mut [u8]) {
    for (at, word) in block.chunks_exact_mut(8).enumerate() {
        let value = (slot as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            ^ (at as u64).wrapping_mul(0xD1B5_4A32_D192_ED03);
        word.copy_from_slice(&value.to_le_bytes());
    }
}

struct Bench {
    volume: Volume,
    buffer: Arc<GdsBuffer>,
    memory: Arc<Allocation>,
    depth: usize,
}

/// A transfer: a slot written from the device's bytes, or read to them.
type Move = fn(&Volume, u32, DeviceRange) -> Pending<DeviceRange>;

fn name(slot: u32) -> Name {
    let hash = SequenceHash::from_u128(u128::from(slot) + 1);
    Name { hash, parent: None, owner: OwnerId::NONE }
}

fn write(volume: &Volume, slot: u32, range: DeviceRange) -> Pending<DeviceRange> {
    volume.write_device(slot, name(slot), range)
}

fn read(volume: &Volume, slot: u32, range: DeviceRange) -> Pending<DeviceRange> {
    volume.read_device(slot, name(slot).hash, Urgency::Ordinary, range)
}

impl Bench {
    /// Moves every slot in one direction, `depth` at a time; returns GB/s.
    fn pass(&self, transfer: Move) -> Result<f64, Box<dyn Error>> {
        let (start, bytes) = (Instant::now(), self.volume.slot_bytes());
        let mut under_way = VecDeque::new();
        for slot in 0..self.volume.slots() {
            if under_way.len() == self.depth {
                drop(under_way.pop_front().map(Pending::wait).transpose()?);
            }
            let range = self.buffer.range(slot as usize % self.depth * bytes, bytes)?;
            under_way.push_back(transfer(&self.volume, slot, range));
        }
        under_way.into_iter().try_for_each(|pending| pending.wait().map(drop))?;
        Ok((self.volume.slots() as usize * bytes) as f64 / start.elapsed().as_secs_f64() / 1e9)
    }

    /// Writes a different pattern to every slot, reads all of them back, and
    /// returns the number of wrong blocks.
    fn check(&self) -> Result<usize, Box<dyn Error>> {
        let bytes = self.volume.slot_bytes();
        let (mut block, mut expected) = (vec![0; bytes], vec![0; bytes]);
        for slot in 0..self.volume.slots() {
            pattern(slot as usize, &mut block);
            self.memory.copy_in(0, &block)?;
            write(&self.volume, slot, self.buffer.range(0, bytes)?).wait()?;
        }
        let mut wrong = 0;
        for slot in 0..self.volume.slots() {
            self.memory.copy_in(0, &vec![0xEE; bytes])?;
            read(&self.volume, slot, self.buffer.range(0, bytes)?).wait()?;
            self.memory.copy_out(0, &mut block)?;
            pattern(slot as usize, &mut expected);
            wrong += usize::from(block != expected);
        }
        Ok(wrong)
    }
}

/// A file that loses its name when this is dropped, not before: cuFile opens it again by name.
struct Scratch(String);

impl Drop for Scratch {
    fn drop(&mut self) {
        // An error cannot be handled here.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn skip(why: &str) -> ExitCode {
    println!("SKIP gds: {why}");
    ExitCode::from(77)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| ".".to_owned());
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse::<usize>());
    let (mib, block_kib, threads) = (number(1024)?, number(1024)?, number(8)?);
    let compat = arguments.next().is_some_and(|word| word == "compat");
    let (block_bytes, depth) = (block_kib << 10, 2 * threads);
    let gds = GdsOptions::new(0).threads(threads).allow_compat(compat);
    // Before the file is made: without a driver it would be useless.
    let opened = GdsDriver::open(gds).map_err(|error| error.to_string());
    let cuda = match opened.and_then(|_| Cuda::open(0)) {
        Ok(cuda) => cuda,
        Err(why) => return Ok(skip(&why)),
    };
    let slots = u32::try_from((mib << 20) / block_bytes)?;
    let scratch = Scratch(format!("{folder}/kvstrata-gds-rate-{}", std::process::id()));
    let options = VolumeOptions::new(&scratch.0, slots, block_bytes).keep(true).write_through(true);
    // One call of cuFile a block, except for reads by the last two requests.
    let options = options.piece_bytes(block_bytes.next_multiple_of(64 << 10)).gds(gds);
    let options = options.device_sums(Arc::new(Unsummed)).skip_verification_unsafe(true);
    let (volume, _) = Volume::open(options)?;
    let Some(driver) = volume.gds() else { return Ok(skip(&volume.describe().notes.join("; "))) };
    println!("{}; {mib} MiB in blocks of {block_kib} KiB, {threads} threads, {folder}", driver.describe());
    let memory = cuda.allocate(depth * block_bytes)?;
    let buffer = GdsBuffer::register(driver, memory.memory())?;
    let bench = Bench { volume, buffer, memory, depth };
    let wrong = bench.check()?;
    println!("  check {slots} blocks written, read back and compared: {wrong} wrong");
    println!("  write {:8.2} GB/s", bench.pass(write)?);
    println!("  read  {:8.2} GB/s", bench.pass(read)?);
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

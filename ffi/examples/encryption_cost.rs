//! Measures the cost of encryption to a volume, beside the same volume without it, in turns:
//!
//! ```sh
//! cargo run --release -p kvstrata-ffi --features encryption --example encryption_cost -- \
//!     [FOLDER] [MIB] [DEPTH] [ROUNDS]
//! ```
//!
//! One thread keeps `DEPTH` requests in flight over files of `MIB`, which are written through before.
//! Prints medians.

use kvstrata_core::SequenceHash;
use kvstrata_ffi::arena::HostArena;
use kvstrata_ffi::disk::{Key, Name, OwnerId, Urgency, Volume, VolumeOptions};
use std::collections::VecDeque;
use std::error::Error;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// GB/s and CPU seconds a GiB.
type Figures = [f64; 2];

fn name(slot: u32) -> Name {
    let hash = SequenceHash::from_u128(u128::from(slot) + 1);
    Name { hash, parent: None, owner: OwnerId::NONE }
}

/// Returns the seconds of user and system time of all threads.
fn cpu_seconds() -> f64 {
    // SAFETY: all-zero bytes are a valid `rusage`: it is made of integers.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: `usage` is ours.
    let _ = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Moves every slot once, in an order without neighbours.
fn pass(
    volume: &Volume,
    arena: &Arc<HostArena>,
    depth: usize,
    writes: bool,
) -> Result<Figures, Box<dyn Error>> {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let slots = volume.slots();
    let step = (1..slots).rev().find(|step| gcd(*step, slots) == 1 && *step < slots * 2 / 3).unwrap_or(1);
    let (mut reads_out, mut writes_out) = (VecDeque::new(), VecDeque::new());
    for n in 0..slots {
        if n as usize >= depth {
            reads_out
                .pop_front()
                .map_or(Ok(()), |out: kvstrata_ffi::disk::Pending<_>| out.wait().map(drop))?;
            writes_out
                .pop_front()
                .map_or(Ok(()), |out: kvstrata_ffi::disk::Pending<_>| out.wait().map(drop))?;
        }
        let slot = (u64::from(n) * u64::from(step) % u64::from(slots)) as u32;
        let block = n as usize % depth;
        if writes {
            writes_out.push_back(volume.write(slot, name(slot), arena.read(block)?));
        } else {
            reads_out.push_back(volume.read(slot, name(slot).hash, Urgency::Ordinary, arena.write(block)?));
        }
    }
    reads_out.into_iter().try_for_each(|out| out.wait().map(drop))?;
    writes_out.into_iter().try_for_each(|out| out.wait().map(drop))?;
    let bytes = f64::from(slots) * volume.slot_bytes() as f64;
    Ok([bytes / start.elapsed().as_secs_f64() / 1e9, (cpu_seconds() - cpu) / bytes * f64::from(1 << 30)])
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn median(figures: &[Figures], which: usize) -> f64 {
    let mut values: Vec<_> = figures.iter().map(|figures| figures[which]).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let folder = arguments.first().map_or(".", String::as_str);
    let (bytes, depth, rounds) = (number(1, 1024)? << 20, number(2, 32)?, number(3, 5)?);
    let key_file = Path::new(folder).join("encryption_cost.key");
    std::fs::write(&key_file, "5a".repeat(32))?;
    std::fs::set_permissions(&key_file, Permissions::from_mode(0o600))?;
    let key = Key::from_file(&key_file);
    std::fs::remove_file(&key_file)?;
    let key = key?;

    println!(
        "| block | direction | plain GB/s | encrypted GB/s | ratio | plain CPU s/GiB | encrypted CPU s/GiB |"
    );
    println!("|---|---|---|---|---|---|---|");
    for slot_bytes in [128 << 10, 1 << 20, 5 << 20] {
        let slots = u32::try_from(bytes / slot_bytes)?;
        let arena = HostArena::new(depth, slot_bytes)?;
        for block in 0..depth {
            arena.write(block)?.fill(block as u8 + 1);
        }
        let path = |kind: &str| Path::new(folder).join(format!("encryption_cost.{kind}"));
        let options =
            |kind| VolumeOptions::new(path(kind), slots, slot_bytes).write_through(true).register(&arena);
        let (plain, _) = Volume::open(options("plain"))?;
        let (sealed, _) = Volume::open(options("sealed").key(key.clone()))?;
        let mut figures: [[Vec<Figures>; 2]; 2] = Default::default();
        for _ in 0..rounds {
            for (direction, writes) in [true, false].into_iter().enumerate() {
                for (kind, volume) in [&plain, &sealed].into_iter().enumerate() {
                    figures[direction][kind].push(pass(volume, &arena, depth, writes)?);
                }
            }
        }
        for (direction, [plain, sealed]) in ["write", "read"].into_iter().zip(&figures) {
            let [rate, cpu] = [0, 1].map(|which| [median(plain, which), median(sealed, which)]);
            println!(
                "| {} KiB | {direction} | {:.2} | {:.2} | {:.2} | {:.3} | {:.3} |",
                slot_bytes >> 10,
                rate[0],
                rate[1],
                rate[1] / rate[0],
                cpu[0],
                cpu[1]
            );
        }
    }
    Ok(())
}

//! How fast a volume moves blocks here, by each backend:
//! `cargo run --release -p kvstrata-ffi --example volume_rate -- [FOLDER] [MIB] [BLOCK_KIB] [DEPTH]`.
//! A sanity check, not a benchmark: one file, one pass of writes and one of reads.

use kvstrata_ffi::arena::{BlockWrite, HostArena};
use kvstrata_ffi::disk::{Backend, Pending, Volume, VolumeOptions};
use std::collections::VecDeque;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| std::env::temp_dir().display().to_string());
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse::<usize>());
    let (mib, block_kib, depth) = (number(512)?, number(1024)?, number(32)?);
    let block_bytes = block_kib << 10;
    let slots = u32::try_from((mib << 20) / block_bytes)?;
    let arena = HostArena::new(depth, block_bytes)?;
    println!("{mib} MiB in blocks of {block_kib} KiB, {depth} at a time, arena on {}", arena.backing());
    for backend in [Backend::UringDirect, Backend::UringBuffered, Backend::Blocking] {
        let path = format!("{folder}/kvstrata-volume-rate-{}", std::process::id());
        let options = VolumeOptions::new(path, slots, block_bytes).backend(backend).register(&arena);
        let volume = match Volume::create(options.write_through(true)) {
            Ok(volume) => volume,
            Err(error) => {
                println!("{backend}: {error}");
                continue;
            }
        };
        println!("{}", volume.describe());
        let rate =
            |start: Instant| f64::from(slots) * block_bytes as f64 / start.elapsed().as_secs_f64() / 1e6;

        let start = Instant::now();
        let mut under_way = VecDeque::new();
        for slot in 0..slots {
            if under_way.len() == depth {
                drop(under_way.pop_front().map(Pending::wait).transpose()?);
            }
            let mut buffer = arena.write(slot as usize % depth)?;
            buffer[..4].copy_from_slice(&slot.to_le_bytes());
            under_way.push_back(volume.write(slot, buffer.into_read()));
        }
        under_way.drain(..).try_for_each(|pending| pending.wait().map(drop))?;
        println!("  write {:8.0} MB/s", rate(start));

        let start = Instant::now();
        let mut under_way: VecDeque<(u32, Pending<BlockWrite>)> = VecDeque::new();
        let mut wrong = 0;
        for slot in 0..slots + u32::try_from(depth)? {
            if under_way.len() == depth || slot >= slots {
                let Some((slot, pending)) = under_way.pop_front() else { break };
                wrong += u32::from(pending.wait()?[..4] != u32::to_le_bytes(slot));
            }
            if slot < slots {
                under_way.push_back((slot, volume.read(slot, arena.write(slot as usize % depth)?)));
            }
        }
        println!("  read  {:8.0} MB/s, {wrong} wrong", rate(start));
        println!("  {:?}", volume.stats());
    }
    Ok(())
}

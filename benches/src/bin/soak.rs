//! Minutes of writes, reads, forgetting and opening again, each byte checked. `benches/soak` calls it.

use kvstrata_benches::disk::Failure;
use kvstrata_benches::disk::files::Folder;
use kvstrata_benches::disk::soak::{Soak, soak};
use kvstrata_benches::disk::target::Plan;
use std::env;
use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "soak [--minutes N | --seconds N] [--disk-dir DIR] [--slots N] [--block-kib N] [--depth N] \
                     [--open-every SECONDS] [--seed N]";

fn main() -> Result<(), Failure> {
    let (mut slots, mut block_kib, mut folder) = (1024_u32, 1024_usize, env::temp_dir());
    let mut options =
        Soak { length: Duration::from_secs(600), open_every: Duration::from_secs(20), depth: 32, seed: 1 };
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--minutes" => options.length = Duration::from_secs_f64(value()?.parse::<f64>()? * 60.0),
            "--seconds" => options.length = Duration::from_secs_f64(value()?.parse()?),
            "--open-every" => options.open_every = Duration::from_secs_f64(value()?.parse()?),
            "--disk-dir" => folder = PathBuf::from(value()?),
            "--slots" => slots = value()?.parse()?,
            "--block-kib" => block_kib = value()?.parse()?,
            "--depth" => options.depth = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            _ => return Err(format!("{argument}: unknown; usage: {USAGE}").into()),
        }
    }
    if options.depth == 0 || (slots as usize) < 2 * options.depth || block_kib == 0 {
        return Err("--slots must be twice --depth at least, and none of the sizes 0".into());
    }
    let slot_bytes = block_kib << 10;
    // As much again for the table, whatever its layout.
    let folder = Folder::new(&folder, u64::from(slots) * (slot_bytes as u64 + 4096) + (64 << 20))?;
    let plan = Plan {
        path: folder.file("volume"),
        slots,
        slot_bytes,
        buffers: options.depth,
        keep: true,
        write_through: true,
    };
    let done = soak(&plan, &options)?;
    println!("{:.0} s, no byte wrong, memory and descriptors flat: {done:?}", options.length.as_secs_f64());
    Ok(())
}

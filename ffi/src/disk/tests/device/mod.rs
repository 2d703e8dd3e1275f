//! The promises of requests over device memory: the same as over host memory. cuFile is a stand-in whose
//! "device" memory is the host's (`gds/tests/fake.rs`); no two of these tests run at a time.

mod faults;
mod life;
mod refusals;
mod ring;
mod summed;

use super::*;
use crate::disk::error::{Direction, FailureCause};
use crate::disk::format::{SUPERBLOCK_BYTES, seal_of_payload};
use crate::disk::pending::Pending;
use crate::disk::recovery::Rejection;
use crate::gds::tests::fake::{Allocation, Event, Fake, context_is_current};
use crate::gds::{DeviceRange, DeviceSums, GdsBuffer, GdsOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Makes the first bytes of the seal on the host, which can read this "device".
struct HostSums;

impl DeviceSums for HostSums {
    fn sum(&self, payload: &DeviceRange) -> Result<u64, i32> {
        assert!(context_is_current());
        let address = core::ptr::with_exposed_provenance::<u8>(payload.address() as usize);
        // SAFETY: the bytes of an `Allocation`, which the range keeps, and which do not change while
        // they are summed.
        let bytes = unsafe { core::slice::from_raw_parts(address, payload.size_bytes()) };
        let seal = seal_of_payload(bytes);
        let (sum, zeros) = seal.split_at(8);
        assert_eq!(zeros, [0; 8]);
        Ok(u64::from_le_bytes(sum.try_into().expect("eight")))
    }
}

/// Fields in the order of their drop: the stand-in goes last.
struct Bench {
    volume: Volume,
    /// As many blocks as the volume has slots.
    buffer: Arc<GdsBuffer>,
    memory: Arc<Allocation>,
    dir: TempDir,
    fake: Fake,
}

fn device_options(fake: &Fake, dir: &TempDir, slots: u32, slot_bytes: usize) -> VolumeOptions {
    let options = options(dir, slots, slot_bytes).keep(true);
    options.gds_by(GdsOptions::new(0), Box::new(fake.opener())).device_sums(Arc::new(HostSums))
}

/// A volume that serves device memory, and some of that; None with a SKIP line without O_DIRECT.
fn bench(
    slots: u32,
    slot_bytes: usize,
    configure: impl FnOnce(VolumeOptions) -> VolumeOptions,
) -> Option<Bench> {
    bench_with(slots, slot_bytes, |_, options| open(configure(options)))
}

fn bench_with(
    slots: u32,
    slot_bytes: usize,
    make: impl FnOnce(&Fake, VolumeOptions) -> Result<Volume, VolumeError>,
) -> Option<Bench> {
    let (fake, dir) = (Fake::new(), dir());
    let volume = volume_or_skip(make(&fake, device_options(&fake, &dir, slots, slot_bytes)))?;
    if !volume.describe().direct {
        skip("o_direct", volume.describe());
        return None;
    }
    let memory = Allocation::new(slots as usize * slot_bytes);
    let driver = volume.gds().expect("the stand-in works");
    let buffer = GdsBuffer::register(driver, memory.memory()).expect("registered");
    fake.log();
    Some(Bench { volume, buffer, memory, dir, fake })
}

impl Bench {
    fn bytes(&self) -> usize {
        self.volume.slot_bytes()
    }

    fn range(&self, block: u32) -> DeviceRange {
        self.buffer.range(block as usize * self.bytes(), self.bytes()).expect("in range")
    }

    /// Puts a block's pattern into the device's memory.
    fn fill(&self, block: u32, slot: u32, round: u32) -> DeviceRange {
        let mut bytes = vec![0; self.bytes()];
        pattern(slot, round, &mut bytes);
        self.memory.put(block as usize * self.bytes(), &bytes);
        self.range(block)
    }

    fn assert_block(&self, block: u32, slot: u32, round: u32) {
        assert_pattern(slot, round, &self.memory.get(block as usize * self.bytes(), self.bytes()));
    }

    fn write(&self, block: u32, slot: u32, round: u32) -> Pending<DeviceRange> {
        self.volume.write_device(slot, name(slot, round), self.fill(block, slot, round))
    }

    fn read(&self, block: u32, slot: u32, round: u32) -> Pending<DeviceRange> {
        self.volume.read_device(slot, name(slot, round).hash, Urgency::Ordinary, self.range(block))
    }

    /// Why a read of this block fails.
    fn refused(&self, slot: u32, round: u32) -> FailureCause {
        let failure = self.read(0, slot, round).wait().expect_err("refused");
        assert_eq!((failure.slot, failure.direction), (slot, Direction::Read));
        failure.cause
    }

    /// The offset of a slot in the file, for a volume whose table fits into a page.
    fn offset(&self, slot: u32) -> u64 {
        (2 * SUPERBLOCK_BYTES + slot as usize * self.bytes()) as u64
    }

    fn damage(&self, slot: u32, at: usize) {
        let file = File::options().read(true).write(true).open(self.dir.path().join("volume")).expect("kept");
        let (at, mut byte) = (self.offset(slot) + at as u64, [0]);
        file.read_exact_at(&mut byte, at).expect("read");
        file.write_all_at(&[byte[0] ^ 0x10], at).expect("written");
        file.sync_all().expect("synced");
    }
}

fn over_each(
    slots: u32,
    slot_bytes: usize,
    configure: impl Fn(VolumeOptions) -> VolumeOptions,
    body: impl Fn(Bench),
) {
    for backend in [Backend::UringDirect, Backend::Blocking] {
        if let Some(bench) = bench(slots, slot_bytes, |options| configure(options.backend(backend))) {
            body(bench);
        }
    }
}

#[test]
fn every_slot_keeps_its_device_bytes() {
    for (slots, slot_bytes) in [(9, 4096), (5, 200 << 10), (4, (1 << 20) + 4096)] {
        over_each(
            slots,
            slot_bytes,
            |options| options.piece_bytes(64 << 10).depth(8),
            |bench| {
                for round in 0..2 {
                    let pending: Vec<_> = (0..slots).map(|slot| bench.write(slot, slot, round)).collect();
                    for (slot, pending) in (0..).zip(pending) {
                        let range = pending.wait().expect("written");
                        assert_eq!(range.offset(), slot * slot_bytes, "the same range comes back");
                    }
                    bench.memory.fill(|_| 0xEE);
                    // In another order than written, each into another block.
                    let pending: Vec<_> =
                        (0..slots).rev().map(|slot| bench.read(slots - 1 - slot, slot, round)).collect();
                    pending.into_iter().for_each(|pending| drop(pending.wait().expect("read")));
                    (0..slots).for_each(|slot| bench.assert_block(slots - 1 - slot, slot, round));
                }
                let stats = bench.volume.stats();
                let each = u64::from(2 * slots);
                assert_eq!((stats.writes, stats.reads, stats.failures, stats.rejected), (each, each, 0, 0));
                // Every byte by cuFile, with the device's context, in pieces of 64 KiB.
                let calls = bench.fake.transfers();
                assert_eq!(calls.len() as u64, 2 * each * slot_bytes.div_ceil(64 << 10) as u64);
                assert!(!calls.contains(&Event::NoContext));
            },
        );
    }
}

#[test]
fn host_and_device_memory_read_each_others_blocks() {
    const BYTES: usize = 200 << 10;
    over_each(
        4,
        BYTES,
        |options| options,
        |bench| {
            let arena = HostArena::new(1, BYTES).expect("arena");
            write_pattern(&bench.volume, &arena, 0, 1, 5);
            bench.write(0, 2, 6).wait().expect("written");
            bench.read(3, 1, 5).wait().expect("its seal was made by the host");
            bench.assert_block(3, 1, 5);
            check_pattern(&bench.volume, &arena, 0, 2, 6);
            let Bench { volume, buffer, memory, dir, fake } = bench;
            drop((memory, volume, buffer));
            assert!(fake.log().ends_with(&[Event::Close, Event::Release(0)]), "nothing is kept");
            let (volume, recovery) =
                Volume::open(options(&dir, 4, BYTES).keep(true)).expect("the same volume, without cuFile");
            assert!(recovery.clean && recovery.blocks.len() == 2);
            check_pattern(&volume, &arena, 0, 2, 6);
            check_pattern(&volume, &arena, 0, 1, 5);
        },
    );
}

#[test]
fn read_of_a_block_not_in_the_slot_is_refused() {
    over_each(
        3,
        8192,
        |options| options,
        |bench| {
            bench.write(0, 1, 1).wait().expect("written");
            bench.write(0, 1, 2).wait().expect("written");
            assert_eq!(bench.refused(1, 1), FailureCause::Rejected(Rejection::OtherHash), "overwritten");
            bench.volume.forget(1);
            bench.volume.flush().wait().expect("flushed");
            assert_eq!(bench.refused(1, 2), FailureCause::Rejected(Rejection::Empty), "forgotten");
            assert_eq!((bench.volume.stats().failures, bench.volume.stats().rejected), (0, 2));
        },
    );
}

#[test]
fn damaged_payload_is_a_miss_and_its_record_goes() {
    over_each(
        3,
        200 << 10,
        |options| options,
        |bench| {
            for slot in 0..3 {
                bench.write(slot, slot, 1).wait().expect("written");
            }
            // In the last, short chunk.
            bench.damage(1, (200 << 10) - 1);
            assert_eq!(bench.refused(1, 1), FailureCause::Rejected(Rejection::Payload));
            assert_eq!(
                bench.refused(1, 1),
                FailureCause::Rejected(Rejection::Empty),
                "it is not asked for again"
            );
            for slot in [0, 2] {
                bench.read(1, slot, 1).wait().expect("its neighbours are whole");
                bench.assert_block(1, slot, 1);
            }
            bench.write(0, 1, 2).wait().expect("the slot can be used again");
            bench.read(1, 1, 2).wait().expect("read");
            assert_eq!((bench.volume.stats().failures, bench.volume.stats().rejected), (0, 2));
        },
    );
}

#[test]
fn small_neighbours_are_never_one_call() {
    let make = |fake: &Fake, options: VolumeOptions| {
        open(options.depth(4).gds_by(GdsOptions::new(0).threads(1), Box::new(fake.opener())))
    };
    let Some(bench) = bench_with(8, 4096, make) else { return };
    for slot in 4..8 {
        bench.write(slot, slot, 0).wait().expect("written");
    }
    // Reads fill the ring behind the first, which is held; four writes wait together.
    let (is_there, go) = bench.fake.hold(0);
    let reads = [7, 6, 5, 4].map(|slot| bench.read(slot, slot, 0));
    is_there.recv().expect("under way");
    let writes = [0, 1, 2, 3].map(|slot| bench.write(slot, slot, 1));
    while bench.volume.queued() > 0 {
        std::thread::yield_now();
    }
    bench.fake.log();
    go.send(()).expect("waits");
    reads.into_iter().chain(writes).for_each(|pending| drop(pending.wait().expect("moved")));
    let write = |slot: u32| Event::Write(4096, bench.offset(slot) as i64, i64::from(slot) * 4096);
    let calls = bench.fake.transfers().into_iter().filter(|call| matches!(call, Event::Write(..)));
    assert_eq!(
        (calls.collect::<Vec<_>>(), bench.volume.stats().merged),
        ([0, 1, 2, 3].map(write).to_vec(), 0)
    );
}

/// Both kinds of completion, the smallest queues, as many sleeps as possible: a lost wake-up hangs this.
#[test]
fn host_and_device_memory_share_a_volume() {
    for depth in [1, 16] {
        over_each(
            8,
            8192,
            |options| options.depth(depth).queue(1),
            |bench| {
                let arena = HostArena::new(4, 8192).expect("arena");
                let rounds = 80;
                std::thread::scope(|scope| {
                    for thread in 0..4_u32 {
                        let (volume, arena, memory) = (&bench.volume, &arena, &bench.memory);
                        // Neighbours in the file are of different kinds.
                        let (own, other) = (2 * thread, 2 * thread + 1);
                        scope.spawn(move || {
                            for round in 0..rounds {
                                write_pattern(volume, arena, thread as usize, own, round);
                                check_pattern(volume, arena, thread as usize, own, round);
                            }
                        });
                        let mut range = Some(bench.range(other));
                        scope.spawn(move || {
                            for round in 0..rounds {
                                let at = other as usize * 8192;
                                let mut bytes = vec![0; 8192];
                                pattern(other, round, &mut bytes);
                                memory.put(at, &bytes);
                                let held = range.take().expect("it comes back");
                                let written = volume.write_device(other, name(other, round), held).wait();
                                memory.put(at, &[0xEE; 8192]);
                                let hash = name(other, round).hash;
                                let held = written.expect("written");
                                let read = volume.read_device(other, hash, Urgency::Urgent, held).wait();
                                range = Some(read.expect("read"));
                                assert_pattern(other, round, &memory.get(at, 8192));
                            }
                        });
                    }
                });
                let (stats, each) = (bench.volume.stats(), 8 * u64::from(rounds));
                assert_eq!((stats.reads, stats.writes, stats.failures, stats.rejected), (each, each, 0, 0));
            },
        );
    }
}

//! Volumes that do not serve device memory: each refusal is typed and names the remedy, and host memory
//! is still served.

use super::*;
use crate::disk::DeviceRefusal;
use crate::gds::GdsError;

/// A volume's answers to both kinds of requests, and its description.
fn refusals(fake: &Fake, dir: &TempDir, options: VolumeOptions) -> Option<(FailureCause, String)> {
    let bytes = options.slot_bytes;
    let volume = volume_or_skip(open(options))?;
    let buffer = GdsBuffer::unregistered(&fake.driver(), Allocation::new(bytes).memory());
    let range = || buffer.range(0, bytes).expect("in range");
    let failure =
        volume.write_device(0, name(0, 1), range()).try_wait().expect("at once").expect_err("refused");
    assert_eq!((failure.slot, failure.direction), (0, Direction::Write));
    assert!(failure.to_string().contains("use host memory"), "{failure}");
    let read = volume.read_device(0, name(0, 1).hash, Urgency::Urgent, range());
    assert_eq!(read.try_wait().expect("at once").expect_err("refused").cause, failure.cause);
    let arena = HostArena::new(1, bytes).expect("arena");
    write_pattern(&volume, &arena, 0, 0, 1);
    check_pattern(&volume, &arena, 0, 0, 1);
    let serves = volume.describe().gds.is_some();
    assert_eq!(
        (volume.gds().is_some(), failure.cause == FailureCause::Device(DeviceRefusal::NoSums)),
        (serves, serves)
    );
    assert_eq!(fake.transfers(), []);
    let words = volume.describe().to_string();
    drop(volume);
    // The next volume starts anew.
    drop(std::fs::remove_file(dir.path().join("volume")));
    Some((failure.cause, words))
}

#[test]
fn missing_condition_for_device_memory_is_named() {
    let (fake, dir) = (Fake::new(), dir());
    let refused = |refusal, note: &str, options| {
        let Some((cause, words)) = refusals(&fake, &dir, options) else { return };
        assert_eq!(cause, FailureCause::Device(refusal));
        assert!(words.contains(note), "{words}");
    };
    let make = || device_options(&fake, &dir, 2, 8192);
    refused(DeviceRefusal::NotAsked, "", options(&dir, 2, 8192).keep(true));
    let odd = DeviceRefusal::SlotBytes { slot_bytes: 6144 };
    refused(
        odd,
        "the slot length is 6144 bytes; make it a multiple of 4096",
        device_options(&fake, &dir, 2, 6144),
    );
    refused(DeviceRefusal::Unavailable, "cuFile needs the file to have a name", make().keep(false));
    refused(DeviceRefusal::Unavailable, "cuFile needs O_DIRECT", make().backend(Backend::UringBuffered));
    #[cfg(feature = "encryption")]
    refused(DeviceRefusal::Encrypted, "is encrypted", make().key(super::super::encrypted::key()));
    assert!(!fake.log().contains(&Event::Register), "cuFile was not asked for these");
}

#[test]
fn refusal_by_cufile_is_in_the_description() {
    let (fake, dir) = (Fake::new(), dir());
    let refused = |note: &str, options| {
        let Some((cause, words)) = refusals(&fake, &dir, options) else { return };
        if !words.contains("O_DIRECT;") {
            return skip("o_direct", &words);
        }
        assert_eq!(cause, FailureCause::Device(DeviceRefusal::Unavailable));
        assert!(words.contains(&format!("the volume refuses device memory: {note}")), "{words}");
    };
    let base = || options(&dir, 2, 8192).keep(true).device_sums(Arc::new(HostSums));
    let missing = |_| {
        let why = "no such file".to_owned();
        Err(GdsError::LibraryMissing { library: "libcufile.so.0".to_owned(), why })
    };
    refused(
        "libcufile.so.0 does not load (no such file); install",
        base().gds_by(GdsOptions::new(0), Box::new(missing)),
    );
    refused("threads is 0", base().gds_by(GdsOptions::new(0).threads(0), Box::new(fake.opener())));
    let make = || device_options(&fake, &dir, 2, 8192);
    fake.set(|world| world.register = 5008);
    refused("cuFile refuses the file with 5008 CU_FILE_IO_NOT_SUPPORTED; it needs", make());
    fake.set(|world| world.register = 0);
    // An older cuFile, which cannot be told not to bounce.
    let bounce = |options: GdsOptions| {
        let why = "cuFile 1.4".to_owned();
        assert_eq!(options, GdsOptions::new(0));
        Err(GdsError::Compat { why })
    };
    refused(
        "cuFile would bounce transfers through host memory",
        base().gds_by(GdsOptions::new(0), Box::new(bounce)),
    );
}

#[test]
fn volume_without_sums_allows_only_unverified_reads() {
    let (fake, dir) = (Fake::new(), dir());
    let make = || {
        let options = options(&dir, 2, 8192).keep(true).reinitialize(true);
        options.gds_by(GdsOptions::new(0), Box::new(fake.opener()))
    };
    let Some((cause, words)) = refusals(&fake, &dir, make()) else { return };
    if !words.contains("O_DIRECT;") {
        return skip("o_direct", &words);
    }
    assert_eq!(cause, FailureCause::Device(DeviceRefusal::NoSums));
    assert!(words.contains("device memory by cuFile 1.19"), "{words}");
    let volume = open(make().skip_verification_unsafe(true)).expect("volume");
    let memory = Allocation::new(8192);
    let buffer =
        GdsBuffer::register(volume.gds().expect("it is served"), memory.memory()).expect("registered");
    let range = || buffer.range(0, 8192).expect("in range");
    let failure =
        volume.write_device(1, name(1, 1), range()).wait().expect_err("no record goes without a seal");
    assert_eq!(failure.cause, FailureCause::Device(DeviceRefusal::NoSums));
    assert!(failure.to_string().contains("set VolumeOptions::device_sums"), "{failure}");
    let arena = HostArena::new(1, 8192).expect("arena");
    write_pattern(&volume, &arena, 0, 1, 1);
    volume.read_device(1, name(1, 1).hash, Urgency::Ordinary, range()).wait().expect("unverified");
    assert_pattern(1, 1, &memory.bytes());
}

#[test]
fn wrong_device_requests_fail_at_once() {
    let Some(bench) = bench(2, 8192, |options| options) else { return };
    let range = |bytes| bench.buffer.range(0, bytes).expect("in range");
    let cause =
        |pending: Pending<DeviceRange>| pending.try_wait().expect("at once").expect_err("wrong").cause;
    let (hash, urgency) = (name(0, 1).hash, Urgency::Ordinary);
    for slot in [2, u32::MAX] {
        let out = FailureCause::SlotOutOfRange { slots: 2 };
        assert_eq!(cause(bench.volume.read_device(slot, hash, urgency, range(8192))), out);
        assert_eq!(cause(bench.volume.write_device(slot, name(0, 1), range(8192))), out);
    }
    for bytes in [0, 4096, 8191, 8193, 16384] {
        let wrong = FailureCause::BufferLength { buffer_bytes: bytes, slot_bytes: 8192 };
        assert_eq!(cause(bench.volume.read_device(0, hash, urgency, range(bytes))), wrong);
        assert_eq!(cause(bench.volume.write_device(0, name(0, 1), range(bytes))), wrong);
    }
    assert_eq!((bench.fake.transfers(), Arc::strong_count(&bench.buffer)), (vec![], 1));
}

#[test]
fn short_block_is_not_read_into_device_memory() {
    let Some(bench) = bench(2, 8192, |options| options) else { return };
    let arena = HostArena::new(1, 8192).expect("arena");
    let payload = arena.read(0).expect("free").first(5000);
    drop(bench.volume.write(1, name(1, 1), payload).wait().expect("written"));
    let wrong = FailureCause::PayloadLength { buffer_bytes: 8192, payload_bytes: 5000 };
    assert_eq!(bench.refused(1, 1), wrong);
    let buffer = arena.write(0).expect("free").first(5000);
    let read = bench.volume.read(1, name(1, 1).hash, Urgency::Ordinary, buffer).wait();
    assert!(read.expect("the block stays").iter().all(|byte| *byte == 0));
}

#[test]
fn set_deals_device_memory_out_to_its_volumes() {
    let (fake, dir) = (Fake::new(), dir());
    let options = |n: u32| {
        let options = VolumeOptions::new(dir.path().join(n.to_string()), 2, 8192).keep(true);
        options.gds_by(GdsOptions::new(0), Box::new(fake.opener())).device_sums(Arc::new(HostSums))
    };
    let (set, _) = crate::disk::VolumeSet::open((0..2).map(options).collect()).expect("set");
    let Some(driver) = set.volumes()[0].gds() else { return skip("o_direct", set.volumes()[0].describe()) };
    let memory = Allocation::new(4 * 8192);
    memory.fill(|at| (at / 8192) as u8 + 1);
    let buffer = GdsBuffer::register(driver, memory.memory()).expect("registered");
    let range = |block: u32| buffer.range(block as usize * 8192, 8192).expect("in range");
    for slot in 0..4 {
        set.write_device(slot, name(slot, 1), range(slot)).wait().expect("written");
    }
    memory.fill(|_| 0);
    for slot in 0..4 {
        set.read_device(slot, name(slot, 1).hash, Urgency::Ordinary, range(3 - slot)).wait().expect("read");
    }
    assert!(memory.bytes().chunks(8192).zip([4, 3, 2, 1]).all(|(block, byte)| block == [byte; 8192]));
    assert_eq!(set.volumes().iter().map(|volume| volume.stats().writes).collect::<Vec<_>>(), [2, 2]);
}

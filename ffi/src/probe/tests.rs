use super::*;
use std::collections::HashSet;

const NAMES: [&str; 17] = [
    "kernel",
    "io_uring",
    "CPU features",
    "memory",
    "memory-lock limit",
    "transparent huge pages",
    "huge page pool",
    "NUMA nodes",
    "file system",
    "free space",
    "O_DIRECT",
    "CUDA driver",
    "CUDA devices",
    "kernels",
    "nvcc",
    "NIXL",
    "cuFile",
];

#[test]
fn every_fact_has_a_name_a_reason_and_a_needed_remedy() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let facts = probe(&dir.path().join("volume"));
    for fact in &facts {
        println!(
            "{:<24} {:<10} {} [{}]",
            fact.name,
            fact.status,
            fact.detail,
            fact.remedy.as_deref().unwrap_or("-")
        );
        assert!(!fact.detail.is_empty() && !fact.why.is_empty());
        assert!(fact.status == Status::Found || fact.remedy.is_some(), "{fact:?}");
    }
    let names: Vec<_> = facts.iter().map(|fact| fact.name).collect();
    assert_eq!(names, NAMES);
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), NAMES.len());
    assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 0, "nothing stays behind");
}

#[test]
fn missing_paths_are_facts() {
    for path in ["/no/such/folder/volume", "", "volume", "/proc/volume"] {
        let facts = probe(Path::new(path));
        assert_eq!(facts.len(), NAMES.len(), "{path}");
    }
}

#[test]
fn hanging_or_panicking_probe_is_left_behind() {
    let (release, released) = mpsc::channel::<()>();
    let facts = answer_within(Duration::from_millis(20), "sick", move || {
        let _ = released.recv();
        Vec::new()
    });
    assert_eq!((facts.len(), facts[0].status), (1, Status::Limited));
    assert!(facts[0].detail.contains("no answer"));
    drop(release);
    let facts = answer_within(PATIENCE, "sick", || std::panic::resume_unwind(Box::new("gone")));
    assert!(facts[0].detail.contains("without an answer"));
}

#[cfg(target_os = "linux")]
#[test]
fn refused_ring_fact_has_its_own_remedy() {
    let remedy = |errno, disabled| kernel::remedy(&std::io::Error::from_raw_os_error(errno), disabled);
    assert!(remedy(libc::ENOMEM, Some("0")).contains("`ulimit -l`"));
    assert!(!remedy(libc::ENOMEM, Some("0")).contains("seccomp"));
    assert!(remedy(libc::EPERM, Some("2")).contains("`kernel.io_uring_disabled` to 0"));
    assert!(remedy(libc::EPERM, Some("0")).contains("seccomp"));
}

#[test]
fn bytes_are_shown_in_their_unit() {
    for (bytes, wanted) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (455_000_000, "434 MiB"),
        (1 << 30, "1.00 GiB"),
        ((1 << 30) - 1, "1.00 GiB"),
        (25 << 29, "12.5 GiB"),
        (300 << 30, "300 GiB"),
        (3 << 40, "3.00 TiB"),
        (u64::MAX, "16.0 EiB"),
    ] {
        assert_eq!(binary(bytes), wanted, "{bytes}");
    }
}

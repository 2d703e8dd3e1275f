//! Kernel version, io_uring, CPU features.

use super::{Fact, read_trimmed};

pub(super) fn version() -> Fact {
    let name = "kernel";
    let why = "io_uring's best set-up needs Linux 6.1";
    let Some(release) = read_trimmed("/proc/sys/kernel/osrelease") else {
        return Fact::not_found(name, "no /proc/sys/kernel/osrelease", why, "run on Linux");
    };
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 1) {
        Fact::found(name, release, why)
    } else {
        Fact::limited(name, release, why, "upgrade to Linux 6.1 or later; older kernels work, with fallbacks")
    }
}

#[cfg(target_os = "linux")]
pub(super) fn io_uring() -> Fact {
    use io_uring::{Probe, opcode};

    let name = "io_uring";
    let why = "the disk tier starts many drive transfers with one system call";
    let (ring, flags) = match crate::disk::ring::uring::set_up(8) {
        Ok(made) => made,
        Err(error) => {
            let disabled = read_trimmed("/proc/sys/kernel/io_uring_disabled");
            return Fact::not_found(name, error.to_string(), why, remedy(&error, disabled.as_deref()));
        }
    };
    let mut known = Probe::new();
    let asked = ring.submitter().register_probe(&mut known);
    let operations = [
        ("READ", opcode::Read::CODE),
        ("WRITE", opcode::Write::CODE),
        ("READ_FIXED", opcode::ReadFixed::CODE),
        ("WRITE_FIXED", opcode::WriteFixed::CODE),
        ("POLL_ADD", opcode::PollAdd::CODE),
    ];
    let missing: Vec<_> =
        operations.iter().filter(|(_, code)| !known.is_supported(*code)).map(|(name, _)| *name).collect();
    let parameters = ring.params();
    let features = [
        ("NODROP", parameters.is_feature_nodrop()),
        ("FAST_POLL", parameters.is_feature_fast_poll()),
        ("EXT_ARG", parameters.is_feature_ext_arg()),
        ("NATIVE_WORKERS", parameters.is_feature_native_workers()),
        ("RSRC_TAGS", parameters.is_feature_resource_tagging()),
    ];
    let features: Vec<_> = features.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    let detail = format!("{flags}; features {}", features.join("|"));
    let upgrade = "upgrade to Linux 6.1 or later";
    match asked {
        Err(error) => Fact::limited(name, format!("{detail}; operations unknown: {error}"), why, upgrade),
        Ok(()) if !missing.is_empty() => {
            Fact::limited(name, format!("{detail}; without {}", missing.join(", ")), why, upgrade)
        }
        Ok(()) if !flags.contains("DEFER_TASKRUN") => Fact::limited(name, detail, why, upgrade),
        Ok(()) => Fact::found(name, detail, why),
    }
}

/// Returns the remedy if no ring can be set up. `disabled` is the value of the sysctl.
#[cfg(target_os = "linux")]
pub(super) fn remedy(error: &std::io::Error, disabled: Option<&str>) -> String {
    let remedy = match (error.raw_os_error(), disabled) {
        (Some(libc::EPERM), Some("1" | "2")) => "set the sysctl `kernel.io_uring_disabled` to 0",
        (Some(libc::EPERM), _) => "allow io_uring in the container's seccomp profile",
        _ => crate::disk::uring_remedy(error),
    };
    format!("{remedy}; until then pread/pwrite threads do the transfers")
}

#[cfg(not(target_os = "linux"))]
pub(super) fn io_uring() -> Fact {
    let why = "the disk tier starts many drive transfers with one system call";
    Fact::not_found(
        "io_uring",
        "not available on this system",
        why,
        "run on Linux; elsewhere pread/pwrite threads do the transfers",
    )
}

#[cfg(target_arch = "x86_64")]
pub(super) fn cpu() -> Fact {
    let features = [
        ("sse4.2", std::is_x86_feature_detected!("sse4.2")),
        ("avx2", std::is_x86_feature_detected!("avx2")),
        ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ("avx512bw", std::is_x86_feature_detected!("avx512bw")),
    ];
    let (name, why) = ("CPU features", "block hashes and checksums use vector instructions");
    let list: Vec<_> = features.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    if std::is_x86_feature_detected!("avx2") {
        Fact::found(name, list.join(" "), why)
    } else {
        let detail = if list.is_empty() { "none of those probed".to_owned() } else { list.join(" ") };
        Fact::limited(
            name,
            detail,
            why,
            "expose the host's CPU to the virtual machine; hashing is slower without AVX2",
        )
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn cpu() -> Fact {
    Fact::found("CPU features", std::env::consts::ARCH, "block hashes and checksums use vector instructions")
}

//! Which memory node a device is near, and how to get pages there.

use core::fmt;
use std::path::Path;

/// Where an arena's pages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// From the node that the device is at, as long as it has any.
    Node(u32),
    /// The machine has one node: nothing to choose.
    OneNode,
    /// The system does not say which node the device is at: they come from the node of who touches them first.
    Unknown,
    /// The kernel refused the wish, with this error number.
    Refused(i32),
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Node(node) => write!(f, "node {node}, the device's"),
            Placement::OneNode => f.write_str("one node"),
            Placement::Unknown => f.write_str("any node: the device's node is unknown"),
            Placement::Refused(errno) => write!(f, "any node: mbind failed with error {errno}"),
        }
    }
}

/// Has the pages of fresh memory, which nobody has touched, come from the node of the device at this address on the PCI bus.
pub(super) fn place(address: usize, bytes: usize, pci_bus_id: &str) -> Placement {
    match choose(Path::new("/sys"), pci_bus_id) {
        Placement::Node(node) => match prefer(address, bytes, node) {
            Ok(()) => Placement::Node(node),
            Err(errno) => Placement::Refused(errno),
        },
        other => other,
    }
}

/// The device's node, by the kernel's files below `root`.
fn choose(root: &Path, pci_bus_id: &str) -> Placement {
    let read = |path: &str| std::fs::read_to_string(root.join(path));
    // "0" or "0-1" or "0,2-3": one node only if there is one number.
    if read("devices/system/node/has_memory").is_ok_and(|nodes| nodes.trim().parse::<u32>().is_ok()) {
        return Placement::OneNode;
    }
    // −1 where the firmware does not say.
    let node = read(&format!("bus/pci/devices/{pci_bus_id}/numa_node"));
    node.ok().and_then(|node| node.trim().parse().ok()).map_or(Placement::Unknown, Placement::Node)
}

/// `MPOL_PREFERRED`: other nodes when this one is full, rather than none.
#[cfg(target_os = "linux")]
const PREFERRED: libc::c_long = 1;

#[cfg(target_os = "linux")]
fn prefer(address: usize, bytes: usize, node: u32) -> Result<(), i32> {
    const WORDS: usize = 16;
    let mut mask = [0_u64; WORDS];
    let word = mask.get_mut(node as usize / 64).ok_or(libc::EINVAL)?;
    *word = 1 << (node % 64);
    // SAFETY: mbind(address, bytes, mode, mask, bits, flags) changes where pages come from, never what they hold; the mask is ours,
    // and the kernel reads one bit fewer than it is told.
    let answer = unsafe {
        libc::syscall(libc::SYS_mbind, address, bytes, PREFERRED, mask.as_ptr(), WORDS * 64 + 1, 0_usize)
    };
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}

#[cfg(not(target_os = "linux"))]
fn prefer(_address: usize, _bytes: usize, _node: u32) -> Result<(), i32> {
    Err(libc::ENOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(nodes: &str, node: Option<&str>) -> Placement {
        let root = tempfile::tempdir().expect("a temporary folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("devices/system/node/has_memory", nodes);
        if let Some(node) = node {
            write("bus/pci/devices/0000:3b:00.0/numa_node", node);
        }
        choose(root.path(), "0000:3b:00.0")
    }

    #[test]
    fn placement_follows_the_kernels_numa_node() {
        assert_eq!(machine("0-1\n", Some("1\n")), Placement::Node(1));
        assert_eq!(machine("0,2\n", Some("-1\n")), Placement::Unknown);
        assert_eq!(machine("0-1\n", None), Placement::Unknown);
        assert_eq!(machine("0\n", Some("0\n")), Placement::OneNode);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn numa_preference_is_taken_or_its_error_reported() {
        let arena = crate::arena::HostArena::new(1, 4096).expect("an arena");
        let (base, bytes) = arena.mapped();
        match prefer(base.as_ptr().addr(), bytes, 0) {
            // Filtered by some sandboxes; kernels without NUMA do not have it.
            Ok(()) | Err(libc::EPERM | libc::ENOSYS) => {}
            Err(errno) => panic!("{}", std::io::Error::from_raw_os_error(errno)),
        }
        assert_eq!(prefer(base.as_ptr().addr(), bytes, 5000), Err(libc::EINVAL), "beyond the mask");
    }
}

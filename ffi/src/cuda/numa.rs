//! The memory node near a device, and how pages come from it.

use core::fmt;
use std::path::Path;

/// The origin of an arena's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The node of the device, as long as that node has memory.
    Node(u32),
    /// The machine has one node: there is no choice.
    OneNode,
    /// The system does not name the device's node: a page comes from the node of the thread that first
    /// touches it.
    Unknown,
    /// The kernel refused the request, with this error number.
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

/// Makes the pages of fresh, untouched memory come from the node of the device at this PCI address.
pub(super) fn place(address: usize, bytes: usize, pci_bus_id: &str) -> Placement {
    match choose(Path::new("/sys"), pci_bus_id) {
        Placement::Node(node) => match prefer(address, bytes, node) {
            Ok(()) => Placement::Node(node),
            Err(errno) => Placement::Refused(errno),
        },
        other => other,
    }
}

/// Finds the device's node in the kernel's files below `root`.
fn choose(root: &Path, pci_bus_id: &str) -> Placement {
    let read = |path: &str| std::fs::read_to_string(root.join(path));
    // "0" or "0-1" or "0,2-3": a single number means one node.
    if read("devices/system/node/has_memory").is_ok_and(|nodes| nodes.trim().parse::<u32>().is_ok()) {
        return Placement::OneNode;
    }
    // −1 if the firmware does not say.
    let node = read(&format!("bus/pci/devices/{pci_bus_id}/numa_node"));
    node.ok().and_then(|node| node.trim().parse().ok()).map_or(Placement::Unknown, Placement::Node)
}

/// `MPOL_PREFERRED`: if this node is full, pages come from other nodes instead of failing.
#[cfg(target_os = "linux")]
const PREFERRED: libc::c_long = 1;

#[cfg(target_os = "linux")]
fn prefer(address: usize, bytes: usize, node: u32) -> Result<(), i32> {
    const WORDS: usize = 16;
    let mut mask = [0_u64; WORDS];
    let word = mask.get_mut(node as usize / 64).ok_or(libc::EINVAL)?;
    *word = 1 << (node % 64);
    // SAFETY: mbind(address, bytes, mode, mask, bits, flags) changes the origin of pages, never their
    // contents; the mask is ours, and the kernel reads one bit fewer than it is told.
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
        let (base, bytes) = arena.mapped().expect("a mapping");
        match prefer(base.as_ptr().addr(), bytes, 0) {
            // Some sandboxes filter the call, and kernels without NUMA lack it.
            Ok(()) | Err(libc::EPERM | libc::ENOSYS) => {}
            Err(errno) => panic!("{}", std::io::Error::from_raw_os_error(errno)),
        }
        assert_eq!(prefer(base.as_ptr().addr(), bytes, 5000), Err(libc::EINVAL), "beyond the mask");
    }
}

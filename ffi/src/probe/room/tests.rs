use super::*;

const MIB: u64 = 1 << 20;
const V1_NONE: &str = "9223372036854771712";

/// A tree of the kernel's files, with contents.
struct Tree(tempfile::TempDir);

impl Tree {
    /// A machine with 8 GiB available, and a process with these lines.
    fn new(cgroup: &str, mountinfo: &str) -> Tree {
        let tree = Tree(tempfile::tempdir().expect("a folder"));
        tree.put("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8388608 kB\n");
        tree.put("proc/self/cgroup", cgroup);
        tree.put("proc/self/mountinfo", mountinfo);
        tree
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    /// A group of version 2 that uses this many MiB; a quarter of that is page cache.
    fn two(&self, group: &str, limit: &str, used: u64) {
        let (group, quarter) = (format!("sys/fs/cgroup/{group}"), used * MIB / 8);
        self.put(&format!("{group}/memory.max"), limit);
        self.put(&format!("{group}/memory.current"), &(used * MIB).to_string());
        let stat = format!("anon 1\nfile 99\ninactive_file {quarter}\nactive_file {quarter}\n");
        self.put(&format!("{group}/memory.stat"), &stat);
    }

    fn one(&self, group: &str, limit: &str, used: u64) {
        let (group, quarter) = (format!("sys/fs/cgroup/memory/{group}"), used * MIB / 8);
        self.put(&format!("{group}/memory.limit_in_bytes"), limit);
        self.put(&format!("{group}/memory.usage_in_bytes"), &(used * MIB).to_string());
        let stat = format!("inactive_file 0\ntotal_inactive_file {quarter}\ntotal_active_file {quarter}\n");
        self.put(&format!("{group}/memory.stat"), &stat);
        self.put(&format!("{group}/memory.use_hierarchy"), "1\n");
    }

    /// Available MiB, and the folder of the group that bounds them.
    fn room(&self) -> (u64, Option<String>) {
        let room = room_under(self.0.path()).expect("the kernel says");
        let group = match room.bound {
            Bound::Machine => None,
            Bound::Group { path, .. } => {
                let path = path.strip_prefix(self.0.path()).expect("under the root").to_owned();
                Some(path.to_str().expect("UTF-8").to_owned())
            }
        };
        (room.available_bytes / MIB, group)
    }
}

const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory";

#[test]
fn v2_group_and_each_ancestor_bound_the_memory() {
    let tree = Tree::new("0::/pods/a/b\n", V2);
    assert_eq!(tree.room(), (8192, None), "no such groups");
    tree.two("pods/a/b", "max\n", 100);
    tree.two("pods/a", "max\n", 100);
    tree.two("pods", "max\n", 100);
    assert_eq!(tree.room(), (8192, None), "no limits");
    // 1,000 − (400 − 100).
    tree.two("pods", &(1000 * MIB).to_string(), 400);
    assert_eq!(tree.room(), (700, Some("sys/fs/cgroup/pods".to_owned())));
    tree.two("pods/a/b", &(64 * MIB).to_string(), 16);
    assert_eq!(tree.room(), (52, Some("sys/fs/cgroup/pods/a/b".to_owned())));
    // Another process of the group above uses nearly all of it.
    tree.two("pods/a", &(500 * MIB).to_string(), 640);
    assert_eq!(tree.room(), (20, Some("sys/fs/cgroup/pods/a".to_owned())));
    // A limit above the machine's memory is no bound.
    let tree = Tree::new("0::/pods\n", V2);
    tree.two("pods", &(1_u64 << 40).to_string(), 1);
    assert_eq!(tree.room(), (8192, None));
}

#[test]
fn v1_group_and_each_ancestor_bound_the_memory() {
    let tree = Tree::new("9:name=systemd:/\n4:memory:/docker/x\n3:cpuset:/y\n", V1);
    tree.one("docker/x", V1_NONE, 100);
    tree.one("docker", V1_NONE, 100);
    tree.one("", V1_NONE, 100);
    assert_eq!(tree.room(), (8192, None));
    tree.one("docker", &(256 * MIB).to_string(), 128);
    assert_eq!(tree.room(), (160, Some("sys/fs/cgroup/memory/docker".to_owned())));
    tree.one("docker/x", &(64 * MIB).to_string(), 32);
    assert_eq!(tree.room(), (40, Some("sys/fs/cgroup/memory/docker/x".to_owned())));
    // The group above does not count the groups below it.
    tree.one("docker/x", V1_NONE, 32);
    tree.put("sys/fs/cgroup/memory/docker/memory.use_hierarchy", "0\n");
    assert_eq!(tree.room(), (8192, None));
}

#[test]
fn groups_of_both_versions_are_read() {
    let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
    let tree = Tree::new("5:cpu,memory:/a\n0::/a\n", &format!("{V1}\n{unified}"));
    tree.one("a", &(100 * MIB).to_string(), 0);
    assert_eq!(tree.room(), (100, Some("sys/fs/cgroup/memory/a".to_owned())));
    tree.two("unified/a", &(50 * MIB).to_string(), 0);
    assert_eq!(tree.room(), (50, Some("sys/fs/cgroup/unified/a".to_owned())));
}

#[test]
fn container_with_its_group_as_root_is_bounded() {
    // The path is the host's; the mount shows the container's own group.
    let mount = "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
    let tree = Tree::new("4:memory:/docker/x\n", mount);
    tree.one("", &(64 * MIB).to_string(), 32);
    assert_eq!(tree.room(), (40, Some("sys/fs/cgroup/memory".to_owned())));
    // The process is in a subgroup of that group.
    let tree = Tree::new("4:memory:/docker/x/job\n", mount);
    tree.one("", &(64 * MIB).to_string(), 32);
    tree.one("job", &(16 * MIB).to_string(), 8);
    assert_eq!(tree.room(), (10, Some("sys/fs/cgroup/memory/job".to_owned())));
    // A path outside of its namespace.
    let tree = Tree::new("0::/../other\n", V2);
    tree.two("", &(64 * MIB).to_string(), 32);
    assert_eq!(tree.room(), (40, Some("sys/fs/cgroup".to_owned())));
}

#[test]
fn odd_and_missing_files_bound_nothing() {
    assert_eq!(room_under(Path::new("/no/such/folder")), None);
    for (cgroup, mounts) in
        [("", ""), ("0:", V2), ("::::", "- -"), ("0::/a", "1 2 3 - cgroup2"), ("\n\n", V1)]
    {
        assert_eq!(Tree::new(cgroup, mounts).room(), (8192, None), "{cgroup:?} {mounts:?}");
    }
    let tree = Tree::new("0::/a\n", V2);
    tree.put("sys/fs/cgroup/a/memory.max", "many\n");
    assert_eq!(tree.room(), (8192, None));
    // Without a usable figure of use, the limit itself counts.
    tree.put("sys/fs/cgroup/a/memory.max", &(7 * MIB).to_string());
    assert_eq!(tree.room(), (7, Some("sys/fs/cgroup/a".to_owned())));
    // Use above the limit, as after the limit was lowered.
    tree.put("sys/fs/cgroup/a/memory.current", &(9 * MIB).to_string());
    assert_eq!(tree.room(), (0, Some("sys/fs/cgroup/a".to_owned())));
    // A mount point with a space.
    let tree = Tree::new("0::/a\n", "30 23 0:26 / /sys/my\\040groups rw - cgroup2 cgroup2 rw");
    tree.put("sys/my groups/a/memory.max", &(7 * MIB).to_string());
    assert_eq!(tree.room(), (7, Some("sys/my groups/a".to_owned())));
}

#[test]
fn free_huge_pages_are_counted_separately() {
    let tree = Tree::new("", "");
    let pool = "sys/kernel/mm/hugepages/hugepages-2048kB";
    tree.put(&format!("{pool}/free_hugepages"), "10\n");
    tree.put(&format!("{pool}/resv_hugepages"), "4\n");
    let room = room_under(tree.0.path()).expect("the kernel says");
    assert_eq!((room.available_bytes, room.huge_bytes), (8192 * MIB, 12 * MIB));
}

#[cfg(target_os = "linux")]
#[test]
fn memory_room_of_this_machine_is_read() {
    let room = memory_room().expect("procfs");
    assert!(room.available_bytes > 0 && !room.bound.to_string().is_empty(), "{room:?}");
    assert_eq!(kibibytes("VmPeak:\t 9 kB\nVmHWM:\t     128 kB\n", "VmHWM:"), Some(131_072));
}

use super::*;

mod lent;

#[test]
fn blocks_are_zeroed_aligned_and_apart() {
    let arena = HostArena::new(5, 5000).expect("arena");
    assert_eq!((arena.blocks(), arena.block_bytes(), arena.stride()), (5, 5000, 8192));
    assert_eq!(arena.base_address() % MAPPING_ALIGN_BYTES as u64, 0);
    assert_eq!(arena.size_bytes(), 5 * 8192);
    for block in 0..5 {
        let mut bytes = arena.write(block).expect("free");
        assert_eq!(bytes.len(), 5000);
        assert_eq!(bytes.as_ptr().addr() % BLOCK_ALIGN_BYTES, 0);
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(block as u8 + 1);
    }
    for block in 0..5 {
        assert!(arena.read(block).expect("free").iter().all(|byte| *byte == block as u8 + 1));
    }
}

#[test]
fn writer_is_alone_and_readers_share() {
    let arena = HostArena::new(2, 64).expect("arena");
    let first = arena.read(0).expect("free");
    let second = arena.read(0).expect("shared");
    assert_eq!(arena.write(0).unwrap_err(), BorrowError::Reading { block: 0 });
    drop(first);
    assert_eq!(arena.write(0).unwrap_err(), BorrowError::Reading { block: 0 });
    drop(second);
    let writer = arena.write(0).expect("free again");
    assert_eq!(arena.read(0).unwrap_err(), BorrowError::Writing { block: 0 });
    assert_eq!(arena.write(0).unwrap_err(), BorrowError::Writing { block: 0 });
    drop(arena.write(1).expect("another block is not concerned"));
    drop(writer);
    drop(arena.write(0).expect("free again"));
    assert_eq!(arena.read(2).unwrap_err(), BorrowError::OutOfRange { block: 2, blocks: 2 });
    assert_eq!(arena.write(9).unwrap_err(), BorrowError::OutOfRange { block: 9, blocks: 2 });
}

#[test]
fn writer_becomes_a_reader() {
    let arena = HostArena::new(1, 64).expect("arena");
    let mut writer = arena.write(0).expect("free");
    writer[7] = 7;
    let reader = writer.into_read();
    assert_eq!(reader[7], 7);
    let other = arena.read(0).expect("shared");
    assert!(arena.write(0).is_err());
    drop((reader, other));
    assert!(arena.write(0).is_ok());
    assert_eq!(Arc::strong_count(&arena), 1, "no guard left, no count leaked");
}

#[test]
fn guards_outlive_the_arena_handle() {
    let arena = HostArena::new(1, 64).expect("arena");
    let mut guard = arena.write(0).expect("free");
    drop(arena);
    guard.fill(9);
    let sum = std::thread::spawn(move || guard.iter().map(|byte| u32::from(*byte)).sum::<u32>());
    assert_eq!(sum.join().expect("no panic"), 9 * 64);
}

#[test]
fn narrowed_guards_show_the_first_bytes_and_keep_the_room() {
    let arena = HostArena::new(1, 5000).expect("arena");
    let mut writer = arena.write(0).expect("free").first(100);
    assert_eq!((writer.len(), writer.room_bytes(), writer.is_aligned()), (100, 8192, true));
    writer.fill(7);
    let reader = writer.into_read();
    assert_eq!(&*reader, &[7; 100]);
    let reader = reader.first(200);
    assert_eq!(reader.len(), 100, "never wider than it was");
    let reader = reader.first(0);
    assert_eq!((reader.len(), reader.room_bytes()), (1, 8192));
    let whole = reader.whole();
    assert_eq!((whole.len(), whole[99], whole[100]), (5000, 7, 0));
    drop(whole);
    assert_eq!(arena.write(0).expect("free again").first(1).whole().len(), 5000);
}

#[test]
fn impossible_sizes_are_errors() {
    for (blocks, bytes) in [(0, 64), (1, 0), (usize::MAX, 2), (2, usize::MAX), (1 << 40, 1 << 30)] {
        let error = HostArena::new(blocks, bytes).unwrap_err();
        assert!(matches!(error, ArenaError::Size { .. } | ArenaError::Map { .. }), "{error}");
    }
}

#[test]
fn threads_never_share_a_block_with_a_writer() {
    let arena = HostArena::new(3, 256).expect("arena");
    let rounds = 2000;
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let arena = &arena;
            scope.spawn(move || {
                for round in 0..rounds {
                    let block = (round + usize::from(thread)) % 3;
                    if let Ok(mut bytes) = arena.write(block) {
                        bytes.fill(thread);
                        assert!(bytes.iter().all(|byte| *byte == thread));
                    }
                    if let Ok(bytes) = arena.read(block) {
                        let first = bytes[0];
                        assert!(bytes.iter().all(|byte| *byte == first));
                    }
                }
            });
        }
    });
    for block in 0..3 {
        assert!(arena.write(block).is_ok(), "every word was given back");
    }
}

/// Returns the kernel's flags of the mapping that contains an address.
#[cfg(target_os = "linux")]
fn flags_of(address: u64) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("procfs");
    let mut within = false;
    for line in maps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let range = range.and_then(|(start, end)| {
            Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
        });
        match (range, line.strip_prefix("VmFlags:")) {
            (Some(range), _) => within = range.contains(&address),
            (None, Some(flags)) if within => return flags.to_owned(),
            _ => {}
        }
    }
    String::new()
}

#[cfg(target_os = "linux")]
#[test]
fn arena_is_left_out_of_core_dumps() {
    let arena = HostArena::new(3, 1 << 20).expect("arena");
    arena.write(2).expect("free").fill(7);
    for address in [arena.base_address(), arena.base_address() + arena.size_bytes() - 1] {
        let flags = flags_of(address);
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags:?}: no `dd`, which keeps it out");
    }
}

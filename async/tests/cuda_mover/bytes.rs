//! The bytes of copies, and their sums.

use crate::ground::{
    BLOCK_BYTES, BLOCKS, Ground, Heard, LAYER_BYTES, LAYERS, config, copy_of, host, pattern,
};
use kvstrata::movers::{CudaMover, CudaMoverError, CudaMoverOptions};
use kvstrata::transfer::{Cause, Copies, Copy, DeviceMover, Failure, HostMemory, HostSide, Landing, Token};
use kvstrata_core::BlockId;
use kvstrata_ffi::cuda::{DeviceStorage, Place};
use std::sync::Arc;

fn all_well(list: &[Copy]) {
    list.iter().for_each(|copy| assert_eq!(copy.outcome, Ok(()), "{copy:?}"));
}

/// Copies all blocks down into others, and up into others again, in two lists at a time.
#[test]
fn blocks_copied_down_and_up_keep_their_bytes() {
    for seed in 0..6 {
        let ground = Ground::seeded(seed, CudaMoverOptions::new().threads(1 + seed as usize % 3));
        let there = |device: u32| (device * 3 + 1) % BLOCKS;
        let heard = Heard::new();
        let down = |blocks: [u32; 4]| {
            blocks.map(|device| ground.down(device, there(device), 0..LAYERS)).into_iter().collect()
        };
        ground.start(down([6, 1, 2, 0]), &heard);
        ground.start(down([3, 7, 5, 4]), &heard);
        for list in heard.wait(2) {
            all_well(&list);
            assert_eq!(list.len(), 4);
            for copy in &list {
                assert!(
                    matches!(&copy.host, HostSide::Write(held) if held.block() as u32 == there(copy.device.0))
                );
            }
        }
        for device in 0..BLOCKS {
            assert!(ground.host(there(device)) == ground.peek(device), "block {device}");
            assert!(ground.peek(device) == pattern(u64::from(device), BLOCK_BYTES), "the source stays");
            let held = ground.memory.read(there(device)).expect("not written");
            for layer in 0..LAYERS {
                let sum = HostMemory::sum_of(&held[ground.memory.layer(layer).expect("one")]);
                assert!(ground.memory.matches(&held, layer, sum), "layer {layer} is sealed");
            }
        }
        // Up into another block's place.
        let up = |hosts: [u32; 4]| {
            hosts.map(|host| ground.up(host, (host + 3) % BLOCKS, 0..LAYERS, true)).into_iter().collect()
        };
        ground.start(up([0, 2, 4, 6]), &heard);
        ground.start(up([7, 5, 3, 1]), &heard);
        heard.wait(2).iter().for_each(|list| all_well(list));
        for host in 0..BLOCKS {
            assert!(ground.peek((host + 3) % BLOCKS) == ground.host(host), "block {host}");
        }
        ground.finish();
    }
}

#[test]
fn copied_layers_leave_other_layers_as_they_are() {
    let ground = Ground::new(CudaMoverOptions::new());
    // Twice: the plan is prepared, then found.
    for round in 0..2u64 {
        let fill = pattern(90 + round, BLOCK_BYTES);
        (0..BLOCKS).for_each(|block| ground.seal(block, &fill));
        // Several ranges in one list, and blocks of one range that are apart in it.
        let list = vec![
            ground.down(0, 0, 1..2),
            ground.down(1, 1, 0..2),
            ground.down(2, 2, 1..2),
            ground.down(3, 3, 2..2),
            ground.down(4, 4, 0..LAYERS),
            ground.down(5, 5, 1..3),
        ];
        all_well(&ground.carry_out(list));
        for (block, layers) in [(0, 1..2), (1, 0..2), (2, 1..2), (3, 2..2), (4, 0..3), (5, 1..3)] {
            let (host, device) = (ground.host(block), ground.peek(block));
            let held = ground.memory.read(block).expect("not written");
            for layer in 0..LAYERS {
                let of = ground.memory.layer(layer).expect("one");
                let wanted = if layers.contains(&layer) { &device } else { &fill };
                assert!(host[of.clone()] == wanted[of.clone()], "block {block}, layer {layer}");
                let sum = HostMemory::sum_of(&wanted[of]);
                assert!(ground.memory.matches(&held, layer, sum), "block {block}, layer {layer}: its sum");
            }
        }
        // Layers of one block to several, in one list.
        ground.seal(5, &fill);
        let before = ground.peek(6);
        let list = vec![ground.up(5, 6, 2..3, true), ground.up(5, 7, 0..1, true)];
        all_well(&ground.carry_out(list));
        assert!(ground.peek(6)[2 * LAYER_BYTES..] == fill[2 * LAYER_BYTES..]);
        assert!(ground.peek(6)[..2 * LAYER_BYTES] == before[..2 * LAYER_BYTES]);
        assert!(ground.peek(7)[..LAYER_BYTES] == fill[..LAYER_BYTES]);
    }
    ground.finish();
}

#[test]
fn flipped_bit_is_a_mismatch_under_verify() {
    let ground = Ground::new(CudaMoverOptions::new());
    (0..4).for_each(|block| ground.seal(block, &pattern(50 + u64::from(block), BLOCK_BYTES)));
    // In the last layer of block 1.
    ground.memory.write(1).expect("free")[BLOCK_BYTES - 1] ^= 4;
    let before = ground.peek(1);
    let list = (0..4).map(|block| ground.up(block, block, 0..LAYERS, true)).collect();
    let list = ground.carry_out(list);
    for copy in &list {
        let wanted = if copy.device.0 == 1 { Err(Failure::of(Cause::Mismatch)) } else { Ok(()) };
        assert_eq!(copy.outcome, wanted);
        assert!(matches!(copy.host, HostSide::Read(_)), "the guard is back");
    }
    drop(list);
    assert!(ground.peek(1) == before, "nothing of it went up");
    for block in [0, 2, 3] {
        assert!(ground.peek(block) == ground.host(block));
    }
    // The other layers are whole, and without `verify` no sum is compared.
    all_well(&ground.carry_out(vec![ground.up(1, 1, 0..2, true)]));
    all_well(&ground.carry_out(vec![ground.up(1, 1, 0..LAYERS, false)]));
    assert!(ground.peek(1) == ground.host(1));
    ground.finish();
}

#[test]
fn mover_with_its_own_memory_reads_and_writes_blocks() {
    let ground = Ground::new(CudaMoverOptions::new());
    let (memory, pinned) = host(&ground.device, &[LAYER_BYTES; LAYERS as usize]);
    let ends = (Arc::clone(&memory), pinned);
    // Larger than the driver's own alignment.
    let config = config().alignment(1 << 20);
    let mover = CudaMover::allocate(copy_of(&ground.device), config, ends, CudaMoverOptions::new());
    let mover = mover.expect("a mover");
    for block in 0..BLOCKS {
        mover.write_block(BlockId(block), &pattern(u64::from(block), BLOCK_BYTES)).expect("written");
    }
    let heard = Heard::new();
    let held = HostSide::Write(memory.write(2).expect("free"));
    let list = vec![Copy::new(Token(1), BlockId(5), held, 0..LAYERS, false)];
    mover.start(Copies::new(list, Landing::new(Arc::<Heard>::clone(&heard))));
    all_well(&heard.wait(1)[0]);
    assert!(*memory.read(2).expect("not written") == pattern(5, BLOCK_BYTES)[..]);
    for block in 0..BLOCKS {
        assert!(mover.read_block(BlockId(block)).expect("read") == pattern(u64::from(block), BLOCK_BYTES));
    }
    let short = mover.write_block(BlockId(0), &[0; 7]).expect_err("too short");
    assert_eq!(
        short.to_string(),
        format!("bytes given: 7, bytes of a block: {BLOCK_BYTES}; give the whole block")
    );
    assert!(matches!(mover.read_block(BlockId(BLOCKS)), Err(CudaMoverError::Cuda(_))));
    assert!(mover.describe().contains("8 blocks of 3 layers, by the copy engine"), "{}", mover.describe());
    drop((mover, memory));
    // An engine's tensors are reached the same way.
    let fill = pattern(77, BLOCK_BYTES);
    ground.mover().write_block(BlockId(3), &fill).expect("written");
    assert!(ground.peek(3) == fill && ground.mover().read_block(BlockId(3)).expect("read") == fill);
    ground.finish();
}

#[test]
fn host_memory_of_other_sizes_is_refused_with_numbers() {
    let ground = Ground::new(CudaMoverOptions::new());
    let refused = |memory, pinned| {
        let place: Vec<_> =
            ground.tensors.iter().map(|of: &Arc<DeviceStorage>| of.range(0, 1).expect("a byte")).collect();
        let place = (&ground.layout, Place::Device(place));
        let made = CudaMover::new(copy_of(&ground.device), place, (memory, pinned), CudaMoverOptions::new());
        made.expect_err("refused").to_string()
    };
    let (memory, pinned) = host(&ground.device, &[LAYER_BYTES, LAYER_BYTES - 8, LAYER_BYTES + 8]);
    assert_eq!(
        refused(Arc::clone(&memory), pinned),
        "layer 1: 256 bytes at 256, but 248 at 256 in host memory; make host memory with the geometry's layer_bytes"
    );
    let (other, pinned) = host(&ground.device, &[BLOCK_BYTES / 2; 2]);
    assert!(refused(memory, Arc::clone(&pinned)).contains("register `HostMemory::arena`"));
    assert!(refused(other, pinned).contains("layers per block: 3 on the device, 2 in host memory"));
    // The place has a byte of each tensor.
    let (memory, pinned) = host(&ground.device, &[LAYER_BYTES; LAYERS as usize]);
    assert!(refused(memory, pinned).contains("are not inside the device ranges"));
    ground.finish();
}

//! Memory that is registered, shared and given back.

use super::super::error::{GdsError, OutOfRange};
use super::super::memory::GdsBuffer;
use super::fake::{Allocation, Event, Fake};

const BYTES: usize = 16 << 10;

#[test]
fn unregistrable_memory_is_returned_or_used_unregistered() {
    let fake = Fake::new();
    let driver = fake.driver();
    fake.set(|world| world.buffer_register = 5036);
    let refused = GdsBuffer::register(&driver, Allocation::new(BYTES).memory()).expect_err("refused");
    assert!(matches!(refused, GdsError::BufferRefused { bytes: BYTES, .. }));
    assert!(
        refused.to_string().contains("16384 bytes of device memory (5036 CU_FILE_GPU_MEMORY_PINNING_FAILED)")
    );
    let log = fake.log();
    assert_eq!(log[log.len() - 2..], [Event::BufferRegister(BYTES), Event::Freed]);
    drop(GdsBuffer::unregistered(&driver, Allocation::new(BYTES).memory()));
    assert_eq!(fake.log(), [Event::Freed]);
}

#[test]
fn range_holds_its_memory_and_so_does_a_share_in_it() {
    let fake = Fake::new();
    let driver = fake.driver();
    let range = {
        let buffer = GdsBuffer::register(&driver, Allocation::new(BYTES).memory()).expect("registered");
        buffer.range(4096, 8192).expect("in range")
    };
    let base = range.buffer().range(0, 0).expect("in range").address();
    let share = range.share(4096, 4096).expect("within the range");
    assert_eq!((share.offset(), share.size_bytes(), share.address()), (8192, 4096, base + 8192));
    for (offset, bytes) in [(4096, 4097), (8193, 0), (usize::MAX, 2)] {
        assert!(range.share(offset, bytes).is_none(), "inside the buffer or not: {offset} {bytes}");
    }
    drop(range);
    assert!(!fake.log().contains(&Event::BufferDeregister));
    drop(share);
    assert_eq!(fake.log(), [Event::BufferDeregister, Event::Freed]);
}

#[test]
fn range_outside_the_buffer_is_refused() {
    let fake = Fake::new();
    let buffer = GdsBuffer::unregistered(&fake.driver(), Allocation::new(BYTES).memory());
    for (offset, bytes) in [(BYTES, 1), (0, BYTES + 1), (usize::MAX, 2)] {
        let refused = buffer.range(offset, bytes).expect_err("outside");
        assert_eq!(refused, OutOfRange { offset, bytes, limit: BYTES });
    }
}

//! The movers between host memory and a simulated device: by its layers, and through its port.

use crate::ground::{DeviceBytes, Field, Ground};
use kvstrata::movers::{PortMover, ThreadsError, ThreadsMover};
use kvstrata::transfer::{DeviceMover, HostMemory};
use kvstrata_core::DevicePort;
use kvstrata_ffi::copy::HostCopy;
use kvstrata_ffi::device::SimDevice;
use std::any::Any;
use std::sync::Arc;

pub struct Threads {
    pub threads: usize,
    pub past_caches: bool,
}

struct Simulated(Arc<SimDevice>);

impl DeviceBytes for Simulated {
    fn peek(&self, block: u32) -> Vec<u8> {
        let mut bytes = vec![0; self.0.block_bytes()];
        self.0.copy_out(block, 0, &mut bytes).expect("nobody writes it");
        bytes
    }

    fn poke(&self, block: u32, bytes: &[u8]) {
        self.0.copy_in(block, 0, bytes).expect("nobody uses it");
    }

    fn hold(&self, block: u32) -> Option<Box<dyn Any>> {
        Some(Box::new(self.0.hold(block).expect("nobody uses it")))
    }
}

impl Ground for Threads {
    fn shapes(&self) -> Vec<Vec<usize>> {
        // Layers of different odd sizes, off line boundaries; a few large ones; one.
        vec![vec![700, 1, 4096, 63, 2049], vec![50_000; 3], vec![4096]]
    }

    fn make(&self, blocks: u32, layers: &[usize]) -> Option<Field> {
        let device = Arc::new(SimDevice::with_layers(0, blocks as usize, layers).expect("memory"));
        let memory = HostMemory::new(blocks as usize, layers).expect("memory");
        let copy = HostCopy::new().stream_from_bytes(if self.past_caches { 0 } else { u64::MAX });
        let (to, from) = (Arc::clone(&device), Arc::clone(&memory));
        let mover = ThreadsMover::with_copy(to, from, self.threads, copy).expect("threads");
        Some(field(Arc::new(mover), memory, device, blocks))
    }
}

fn field(mover: Arc<dyn DeviceMover>, memory: Arc<HostMemory>, device: Arc<SimDevice>, blocks: u32) -> Field {
    Field { mover, memory, device: Box::new(Simulated(device)), blocks, faulty: None }
}

/// The same device, reached through its port.
struct Ported;

impl Ground for Ported {
    fn shapes(&self) -> Vec<Vec<usize>> {
        // Zeros of more than one write.
        vec![vec![700, 1, 4096, 63, 2049], vec![100_000; 2], vec![4096]]
    }

    fn make(&self, blocks: u32, layers: &[usize]) -> Option<Field> {
        let device = Arc::new(SimDevice::with_layers(0, blocks as usize, layers).expect("memory"));
        let memory = HostMemory::new(blocks as usize, layers).expect("memory");
        let port: Arc<dyn DevicePort> = Arc::<SimDevice>::clone(&device);
        let mover = PortMover::new(port, Arc::clone(&memory), 2).expect("threads");
        Some(field(Arc::new(mover), memory, device, blocks))
    }
}

mod through_a_port {
    contract!(super::Ported);
}

mod one_thread {
    contract!(super::Threads { threads: 1, past_caches: false });
}

mod past_the_caches {
    contract!(super::Threads { threads: 3, past_caches: true });
}

#[test]
fn layers_of_other_sizes_are_refused_with_their_sizes() {
    let memory = HostMemory::new(2, &[8, 9]).expect("memory");
    for layers in [&[8, 8][..], &[8], &[8, 9, 1], &[17]] {
        let device = Arc::new(SimDevice::with_layers(0, 2, layers).expect("memory"));
        let refused = ThreadsMover::new(device, Arc::clone(&memory), 1).expect_err("they differ");
        assert!(
            matches!(&refused, ThreadsError::Layers { device, host } if device == layers && *host == [8, 9])
        );
    }
    let device = Arc::new(SimDevice::with_layers(0, 2, &[8, 9]).expect("memory"));
    assert!(matches!(ThreadsMover::new(device, memory, 0), Err(ThreadsError::NoThreads)));
}

#[test]
fn memories_are_copied_past_the_caches_from_a_size_on() {
    let says = |device_blocks, host_blocks, from| {
        let device = Arc::new(SimDevice::new(device_blocks, 1000).expect("memory"));
        let memory = HostMemory::new(host_blocks, &[1000]).expect("memory");
        let copy = HostCopy::new().stream_from_bytes(from);
        ThreadsMover::with_copy(device, memory, 2, copy).expect("threads").describe()
    };
    for (device, host) in [(5, 9), (9, 5)] {
        assert!(says(device, host, 5000).ends_with(" past the caches"), "{}", says(device, host, 5000));
        assert!(says(device, host, 5001).ends_with(" through the caches"), "{}", says(device, host, 5001));
    }
}

//! The three ways in which a queue learns of the device's answer give the same answers.

use crate::{copy_in, machine, memory, pattern, pinned, read_back, until};
use core::time::Duration;
use kvstrata_ffi::cuda::{Purpose, QueueOptions, TransferQueue, Way};

#[test]
fn every_way_ends_every_transfer() {
    for way in Way::ALL {
        for seed in [0, 5] {
            let (double, device) = machine();
            double.seed(seed);
            let (host, target) = (pinned(&device, 9, 1000), memory(&device, 1000));
            let queues = [Purpose::Offload, Purpose::Onboard, Purpose::Staging].map(|purpose| {
                TransferQueue::new(&device, purpose, QueueOptions::new().way(way)).expect("a queue")
            });
            for round in 0..10 {
                let transfers: Vec<_> =
                    (0..8).map(|block| copy_in(&queues[block % 3], &host, block, &target)).collect();
                for (block, transfer) in transfers.into_iter().enumerate() {
                    if (block + round) % 5 == 0 {
                        drop(transfer)
                    } else {
                        drop(transfer.wait().expect("copied"))
                    }
                }
                for block in 0..8 {
                    until("the block's return", || host.arena().write(block).is_ok());
                }
            }
            let rung = double.calls("cuLaunchHostFunc");
            assert_eq!(rung, if way == Way::HostFunction { 80 } else { 0 }, "{way}");
            assert_eq!(double.calls("cuStreamWriteValue32_v2"), if way == Way::Flag { 80 } else { 0 });
            drop((queues, host, target, device));
            until("the release", || double.left().contexts == 0);
            double.finish();
        }
    }
}

#[test]
fn unannounced_completion_ends_by_its_event() {
    for (way, call) in [(Way::HostFunction, "cuLaunchHostFunc"), (Way::Flag, "cuStreamWriteValue32_v2")] {
        let (double, device) = machine();
        let (host, target) = (pinned(&device, 4, 1000), memory(&device, 1000));
        let options = QueueOptions::new().way(way).watch(Duration::from_secs(3600));
        let queue = TransferQueue::new(&device, Purpose::Onboard, options).expect("a queue");
        for refused in [2, 1] {
            double.fail(call, refused, 801);
            let transfers: Vec<_> = (0..3).map(|block| copy_in(&queue, &host, block, &target)).collect();
            for transfer in transfers {
                drop(transfer.wait().expect("copied"));
            }
        }
        assert!(read_back(&host, 3, &target) == pattern(2, 1000));
        drop((queue, host, target, device));
        until("the release", || double.left().contexts == 0);
        double.finish();
    }
}

#[test]
fn flags_memory_stays_until_it_is_written() {
    let (double, device) = machine();
    let (host, target) = (pinned(&device, 1, 1000), memory(&device, 1000));
    let options = QueueOptions::new().way(Way::Flag);
    let queue = TransferQueue::new(&device, Purpose::Onboard, options).expect("a queue");
    double.hold();
    let transfer = copy_in(&queue, &host, 0, &target);
    // The copy and the event, but not the write.
    double.step(2);
    drop((transfer, queue, host, target, device));
    assert_eq!(double.left().registrations, 2, "the block's and the flag's");
    double.release();
    until("the release", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn failed_queue_creation_leaves_nothing() {
    let (double, device) = machine();
    for (way, call) in [
        (Way::Event, "cuCtxGetStreamPriorityRange"),
        (Way::Event, "cuStreamCreateWithPriority"),
        (Way::Flag, "cuMemHostRegister_v2"),
        (Way::Flag, "cuMemHostGetDevicePointer_v2"),
    ] {
        double.fail(call, 1, 801);
        let refused = TransferQueue::new(&device, Purpose::Onboard, QueueOptions::new().way(way));
        assert_eq!(refused.expect_err(call).number(), 801);
        assert_eq!((double.left().streams, double.left().registrations), (0, 0), "{call}");
    }
    drop(device);
    double.finish();
}

//! Tuning over the double, with the kernels on the CPU. Its times are the double's, and say nothing
//! of a device.

use crate::machine;
use core::ffi::c_void;
use core::time::Duration;
use kvstrata_cuda_double::Double;
use kvstrata_ffi::cuda::{
    CopyCosts, CostSource, CudaDevice, CudaError, CudaKernels, Direction, Route, TuneOptions, tune,
};
use kvstrata_kernels::{Image, cpu};
use std::sync::Arc;

/// The kernels on the CPU; `broken` does nothing.
fn kernels(
    double: &Double,
    device: &Arc<CudaDevice>,
    broken: Option<&str>,
) -> Result<CudaKernels, CudaError> {
    unsafe extern "C" fn nothing(_: u32, _: u32, _: *const c_void) {}
    double.plain_addresses();
    let kernels = crate::plans::kernels(double, device);
    if let Some(name) = broken {
        let kernel = cpu::kernels().find(|kernel| kernel.name.to_str() == Ok(name)).expect("a kernel");
        // SAFETY: it does nothing, whatever its arguments.
        unsafe { double.kernel(name, kernel.parameters_bytes, nothing) };
        let images = ["convert", "copy", "permute", "sum"].map(|name| Image { name, bytes: b"image" });
        // SAFETY: the double takes any image.
        return unsafe { CudaKernels::of(device, &images) };
    }
    Ok(kernels)
}

fn none() -> Result<CudaKernels, CudaError> {
    Err(CudaError::NoKernels { why: "left out by the test".to_owned() })
}

/// No time limit in practice, for copies of up to this many bytes.
fn up_to(bytes: u64) -> TuneOptions {
    TuneOptions::new().time_limit(Duration::from_secs(600)).most_bytes(bytes)
}

fn quietly(
    device: &Arc<CudaDevice>,
    kernels: Result<CudaKernels, CudaError>,
    options: TuneOptions,
) -> Result<CopyCosts, CudaError> {
    tune(device, kernels, &mut |_, _| {}, options)
}

/// Counts the measured cells of a route, in all directions.
fn measured(costs: &CopyCosts, route: Route) -> usize {
    let cells = |direction: usize| costs.directions()[direction].cells[route as usize];
    (0..3).map(|direction| cells(direction).iter().flatten().flatten().count()).sum()
}

#[test]
fn every_route_is_measured_at_every_point() {
    let (double, device) = machine();
    let kernels = kernels(&double, &device, None);
    let mut steps = Vec::new();
    let most = 128 << 10;
    let costs = tune(&device, kernels, &mut |done, of| steps.push((done, of)), up_to(most)).expect("tuned");
    for (costs, direction) in costs.directions().iter().zip(Direction::ALL) {
        for (cells, route) in costs.cells.iter().zip(Route::ALL) {
            let there = direction != Direction::DeviceToDevice || route != Route::Rows;
            for (size, row) in CopyCosts::SIZES.into_iter().zip(cells) {
                for (count, time) in CopyCosts::COUNTS.into_iter().zip(row) {
                    let wanted = there && size * count <= most;
                    assert_eq!(time.is_some(), wanted, "{route:?}: {count} pieces of {size}");
                }
            }
        }
        assert!(costs.ctas.is_some_and(|ctas| (2..=32).contains(&ctas)), "{:?}", costs.ctas);
        assert!(costs.narrow.iter().all(|factor| *factor >= 1.0));
    }
    match costs.source() {
        CostSource::Measured { card, cuda, when } => {
            assert_eq!((card.as_str(), *cuda, when.len()), ("kvstrata test double 0", (13, 0), 20));
        }
        other @ CostSource::Reasoned { .. } => panic!("{other}"),
    }
    assert!(steps.is_sorted() && steps.first().is_some_and(|first| first.0 == 0));
    assert!(
        steps.iter().all(|(_, of)| *of == steps[0].1) && steps.last().is_some_and(|last| last.0 == last.1)
    );
    drop(device);
    double.finish();
}

#[test]
fn missing_routes_are_not_measured() {
    // No kernels.
    let (double, device) = machine();
    let costs = quietly(&device, none(), up_to(64 << 10)).expect("tuned");
    assert_eq!(measured(&costs, Route::Kernel), 0);
    assert!(measured(&costs, Route::Batch) > 0 && measured(&costs, Route::Rows) > 0);
    assert!(costs.directions().iter().all(|costs| costs.ctas.is_none()));
    drop(device);
    double.finish();
    // Images that lack the functions.
    let (double, device) = machine();
    // SAFETY: the double takes any image.
    let kernels = unsafe { CudaKernels::of(&device, &[Image { name: "copy", bytes: b"image" }]) };
    let costs = quietly(&device, kernels, up_to(64 << 10)).expect("tuned");
    assert_eq!(measured(&costs, Route::Kernel), 0);
    drop(device);
    double.finish();
    // No batches: the driver has none; the device refuses them.
    for refused in [false, true] {
        let double = Double::new();
        if refused {
            // After a part of the cells.
            double.fail("cuMemcpyBatchAsync_v2", 60, 801);
        } else {
            double.version(12_060);
        }
        let device = crate::open(0);
        let costs = quietly(&device, none(), up_to(64 << 10)).expect("tuned");
        assert_eq!(measured(&costs, Route::Batch), 0, "refused: {refused}");
        assert!(measured(&costs, Route::Single) > 0);
        drop(device);
        double.finish();
    }
}

#[test]
fn route_that_copies_wrong_bytes_is_an_error() {
    // Short pieces, long ones, and those for the check of widths: 128 vectors of 4 bytes.
    for broken in ["copy16_strewn_small", "copy16_tiled_small", "copy4_tiled_small"] {
        let (double, device) = machine();
        let kernels = kernels(&double, &device, Some(broken));
        match quietly(&device, kernels, up_to(1 << 20)).expect_err(broken) {
            CudaError::WrongBytes { route, direction, .. } => {
                assert_eq!((route, direction), ("kernel", Direction::ALL[0].name()), "{broken}");
            }
            other => panic!("{broken}: {other}"),
        }
        drop(device);
        double.finish();
    }
}

#[test]
fn less_memory_and_less_time_measure_less() {
    // The device has 2 MiB, and half of it is left to others; or the host may register a quarter of one MiB.
    for (memory_bytes, register_bytes) in [(2 << 20, u64::MAX), (1 << 30, 256 << 10)] {
        let double = Double::new();
        double.memory(memory_bytes, register_bytes);
        let device = crate::open(0);
        let costs = quietly(&device, none(), up_to(1 << 20)).expect("tuned");
        let cells = &costs.directions()[0].cells[Route::Single as usize];
        assert!(cells[0][0].is_some() && cells[7][0].is_some(), "64 KiB");
        assert!(cells[10][0].is_none(), "512 KiB");
        drop(device);
        double.finish();
    }
    let double = Double::new();
    double.memory(1 << 30, 4096);
    let device = crate::open(0);
    let refused = quietly(&device, none(), up_to(1 << 20)).expect_err("no host memory");
    assert!(matches!(refused, CudaError::Register { .. }), "{refused}");
    drop(device);
    let costs = {
        double.reset();
        let device = crate::open(0);
        let mut last = None;
        let brief = up_to(1 << 20).time_limit(Duration::ZERO);
        let costs = tune(&device, none(), &mut |done, of| last = Some((done, of)), brief);
        assert!(last.is_some_and(|(done, of)| done == of), "{last:?}");
        costs.expect("tuned")
    };
    assert_eq!(measured(&costs, Route::Single), 3, "a cell of each direction");
    double.finish();
}

#[test]
fn device_that_does_not_answer_is_given_up() {
    let (double, device) = machine();
    let options = up_to(64 << 10).deadline(Duration::from_millis(20));
    let mut held = false;
    let error = tune(
        &device,
        none(),
        &mut |done, _| {
            // From the first cell on.
            if done == Direction::ALL.len() && !held {
                held = true;
                double.hold();
            }
        },
        options,
    );
    let error = error.expect_err("held");
    assert_eq!(error, CudaError::Deadline { device: 0, waited_ms: 20 });
    assert!(double.left().allocations > 0, "what the device may still use stays");
    double.release();
    drop(device);
    crate::until("the end of the copy that was given up", || double.left().contexts == 0);
    double.finish();
}

#[test]
fn dead_device_ends_it_with_its_error() {
    let (double, device) = machine();
    double.break_at(0, 500, 719);
    let error = quietly(&device, none(), up_to(1 << 20)).expect_err("dead");
    assert!(error.fault().is_some_and(|fault| fault.code.number() == 719), "{error}");
    drop(device);
    let (misuse, words) = double.misuse();
    assert_eq!(misuse, 0, "{words}");
    double.reset();
}

//! Copies and fills, checked and poisoned at submission.

use super::handle_of;
use crate::engine::{Op, Rows, What};
use crate::memory::{Span, overlap};
use crate::world::{Answer, Need, PER_THREAD, World, call, code};
use core::ffi::{c_int, c_uint, c_void};

/// Takes copies into a stream, if each is inside memory that the device reaches.
fn take(world: &mut World, name: &str, device: u32, stream: *mut c_void, copies: Vec<Rows>) -> Answer {
    let mut targets: Vec<Span> = Vec::new();
    let mut touches: Vec<Span> = Vec::new();
    for copy in &copies {
        for (source, target) in copy.sources().zip(copy.targets()) {
            if source.1 == 0 {
                return world.refuse(code::INVALID_VALUE, format!("{name} of 0 bytes"));
            }
            for span in [source, target] {
                let inside = world.memory.place(span).is_some();
                if !inside || (!world.memory.is_device(span.0) && !world.memory.is_registered(span)) {
                    let what =
                        if inside { "is not registered, or not as one" } else { "is in no allocation" };
                    return world
                        .refuse(code::INVALID_VALUE, format!("{name}: {:#x} + {} {what}", span.0, span.1));
                }
            }
            targets.push(target);
            touches.extend([own(world, source), own(world, target)]);
        }
    }
    targets.sort_unstable();
    if targets.windows(2).any(|pair| overlap(pair[0], pair[1])) {
        return world.refuse(code::INVALID_VALUE, format!("{name}: targets overlap"));
    }
    // Bytes that another operation still reads or writes are kept: stream order makes that right.
    let free: Vec<Span> = targets.into_iter().filter(|span| !world.in_flight(own(world, *span))).collect();
    world.submit(name, device, handle_of(stream), Op { what: What::Copy(copies), touches })?;
    for span in free {
        world.memory.poison(span);
    }
    Ok(())
}

/// Returns a stretch by the address of its allocation, so that an import counts as the same memory.
fn own(world: &World, span: Span) -> Span {
    let inner = world.memory.allocation_of(span.0).map_or(span.0, |(_, inner)| inner);
    (inner, span.1)
}

fn host(world: &mut World, name: &str, address: u64, is_host: bool) -> Answer {
    if world.memory.is_device(address) == is_host {
        return world.refuse(code::INVALID_VALUE, format!("{name}: {address:#x} is on the wrong side"));
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    target: u64,
    source: *const c_void,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    let name = "cuMemcpyHtoDAsync_v2";
    call(name, Need::Context, |world, device| {
        let source = source.expose_provenance() as u64;
        host(world, name, source, true)?;
        host(world, name, target, false)?;
        take(world, name, device, stream, vec![Rows::line(target, source, bytes as u64)])
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    target: *mut c_void,
    source: u64,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    let name = "cuMemcpyDtoHAsync_v2";
    call(name, Need::Context, |world, device| {
        let target = target.expose_provenance() as u64;
        host(world, name, target, true)?;
        host(world, name, source, false)?;
        take(world, name, device, stream, vec![Rows::line(target, source, bytes as u64)])
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    target: u64,
    source: u64,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    let name = "cuMemcpyDtoDAsync_v2";
    call(name, Need::Context, |world, device| {
        host(world, name, target, false)?;
        host(world, name, source, false)?;
        take(world, name, device, stream, vec![Rows::line(target, source, bytes as u64)])
    })
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Copy2d {
    source_x: usize,
    source_y: usize,
    source_kind: c_uint,
    source_host: *const c_void,
    source_device: u64,
    source_array: *mut c_void,
    source_pitch: usize,
    target_x: usize,
    target_y: usize,
    target_kind: c_uint,
    target_host: *mut c_void,
    target_device: u64,
    target_array: *mut c_void,
    target_pitch: usize,
    width: usize,
    height: usize,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy2DAsync_v2(copy: *const c_void, stream: *mut c_void) -> c_int {
    let name = "cuMemcpy2DAsync_v2";
    // SAFETY: the caller's, and one `CUDA_MEMCPY2D`.
    let copy = unsafe { &*copy.cast::<Copy2d>() };
    call(name, Need::Context, |world, device| {
        let side = |kind, host: usize, device| match kind {
            1 => Ok(host as u64),
            2 => Ok(device),
            _ => Err(code::INVALID_VALUE),
        };
        let source = side(copy.source_kind, copy.source_host.expose_provenance(), copy.source_device)?;
        let target = side(copy.target_kind, copy.target_host.expose_provenance(), copy.target_device)?;
        host(world, name, source, copy.source_kind == 1)?;
        host(world, name, target, copy.target_kind == 1)?;
        if copy.source_pitch < copy.width || copy.target_pitch < copy.width {
            return world.refuse(code::INVALID_VALUE, format!("{name}: a pitch below the width"));
        }
        let arrays = !copy.source_array.is_null() || !copy.target_array.is_null();
        if arrays || copy.source_x + copy.source_y + copy.target_x + copy.target_y != 0 {
            return world
                .refuse(code::INVALID_VALUE, format!("{name}: arrays and offsets are not the double's"));
        }
        let rows = Rows {
            target,
            source,
            width: copy.width as u64,
            height: copy.height as u64,
            target_pitch: copy.target_pitch as u64,
            source_pitch: copy.source_pitch as u64,
        };
        take(world, name, device, stream, vec![rows])
    })
}

/// `CUmemcpyAttributes`.
#[repr(C)]
struct Attributes {
    source_order: c_uint,
    source_hint: [c_int; 2],
    target_hint: [c_int; 2],
    flags: c_uint,
}

/// CUDA's declaration by which a batch is called.
struct Called {
    name: &'static str,
    /// The first version that has it, and the first that no longer has it.
    versions: (c_int, c_int),
}

/// The declaration of CUDA 12.8 and 12.9, under a name that later drivers may not have.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyBatchAsync(
    targets: *mut u64,
    sources: *mut u64,
    sizes: *mut usize,
    count: usize,
    attributes: *mut c_void,
    attribute_starts: *mut usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: *mut c_void,
) -> c_int {
    let called = Called { name: "cuMemcpyBatchAsync", versions: (12080, 13000) };
    // SAFETY: the caller's, for one number.
    if unsafe { failed.as_mut() }.map(|failed| *failed = usize::MAX).is_none() {
        return code::INVALID_VALUE;
    }
    let lists = (targets, sources, sizes, count);
    // SAFETY: the caller's.
    unsafe { batch(&called, lists, (attributes, attribute_starts, attribute_count), stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyBatchAsync_v2(
    targets: *mut u64,
    sources: *mut u64,
    sizes: *mut usize,
    count: usize,
    attributes: *mut c_void,
    attribute_starts: *mut usize,
    attribute_count: usize,
    stream: *mut c_void,
) -> c_int {
    let called = Called { name: "cuMemcpyBatchAsync_v2", versions: (13000, c_int::MAX) };
    let lists = (targets, sources, sizes, count);
    // SAFETY: the caller's.
    unsafe { batch(&called, lists, (attributes, attribute_starts, attribute_count), stream) }
}

/// # Safety
/// The lists are the caller's, with the given lengths.
unsafe fn batch(
    called: &Called,
    (targets, sources, sizes, count): (*mut u64, *mut u64, *mut usize, usize),
    (attributes, attribute_starts, attribute_count): (*mut c_void, *mut usize, usize),
    stream: *mut c_void,
) -> c_int {
    let name = called.name;
    call(name, Need::Context, |world, device| {
        let version = world.settings.version;
        if !(called.versions.0..called.versions.1).contains(&version) {
            return world.refuse(code::NOT_FOUND, format!("{name} of a driver of version {version}"));
        }
        if handle_of(stream) <= PER_THREAD {
            return world.refuse(code::INVALID_VALUE, format!("{name} on a default stream"));
        }
        if count == 0 || attribute_count != 1 {
            return world
                .refuse(code::INVALID_VALUE, format!("{name} of {count}, attributes {attribute_count}"));
        }
        // SAFETY: the caller's, `attribute_count` of them.
        let attributes = unsafe { &*attributes.cast::<Attributes>() };
        // SAFETY: the caller's, as many.
        let start = unsafe { *attribute_starts };
        // Stream order is the only order that leaves the source alone until its copy.
        if start != 0 || attributes.source_order != 1 || attributes.flags > 1 {
            return world.refuse(code::INVALID_VALUE, format!("{name}: attributes"));
        }
        if [attributes.source_hint, attributes.target_hint].iter().any(|hint| *hint != [0, 0]) {
            return world.refuse(code::INVALID_VALUE, format!("{name}: hints are not the double's"));
        }
        world.batch_flags = attributes.flags;
        // SAFETY: the caller's, `count` of them.
        let targets = unsafe { core::slice::from_raw_parts(targets, count) };
        // SAFETY: as above.
        let sources = unsafe { core::slice::from_raw_parts(sources, count) };
        // SAFETY: as above.
        let sizes = unsafe { core::slice::from_raw_parts(sizes, count) };
        if world.settings.mapped_at != 0
            && targets.iter().chain(sources).any(|at| !world.memory.is_device(*at))
        {
            return world
                .refuse(code::INVALID_VALUE, format!("{name}: a host's address taken for the device's"));
        }
        let pieces = targets.iter().zip(sources).zip(sizes);
        let copies = pieces.map(|((target, source), bytes)| Rows::line(*target, *source, *bytes as u64));
        take(world, name, device, stream, copies.collect())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD8Async(target: u64, byte: u8, bytes: usize, stream: *mut c_void) -> c_int {
    let name = "cuMemsetD8Async";
    call(name, Need::Context, |world, device| {
        host(world, name, target, false)?;
        let span = (target, bytes as u64);
        if bytes == 0 || world.memory.place(span).is_none() {
            return world.refuse(code::INVALID_VALUE, format!("{name}: {target:#x} + {bytes}"));
        }
        let touches = vec![own(world, span)];
        world.submit(name, device, handle_of(stream), Op { what: What::Fill { span, byte }, touches })
    })
}

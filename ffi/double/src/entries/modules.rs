//! Modules and launches. An image is only remembered; its functions are the kernels that tests registered
//! by name.

use super::{answer, handle_of, pointer_of};
use crate::engine::{Op, What};
use crate::world::{Need, call, code};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) -> c_int {
    call("cuModuleLoadData", Need::Context, |world, device| {
        if image.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the caller's image has at least one byte.
        if unsafe { *image.cast::<u8>() } == 0 {
            return Err(code::INVALID_IMAGE);
        }
        let handle = world.handle();
        world.modules.insert(handle, device);
        // SAFETY: the caller's, for one handle.
        unsafe { answer(module, pointer_of(handle)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleUnload(module: *mut c_void) -> c_int {
    call("cuModuleUnload", Need::Context, |world, _| {
        let handle = handle_of(module);
        if world.modules.remove(&handle).is_none() {
            return world.refuse(code::INVALID_HANDLE, "a module unloaded twice".to_owned());
        }
        world.functions.retain(|_, (module, _)| *module != handle);
        let pending =
            world.pending().any(|op| matches!(op.what, What::Kernel { module, .. } if module == handle));
        if pending {
            world.misused("a module unloaded while its kernel is in flight".to_owned());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller's, and a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    call("cuModuleGetFunction", Need::Context, |world, _| {
        let module = handle_of(module);
        if !world.modules.contains_key(&module) {
            return world.refuse(code::INVALID_HANDLE, "a function of an unloaded module".to_owned());
        }
        let kernel = *world.kernels.get(&*name).ok_or(code::NOT_FOUND)?;
        let handle = world.handle();
        world.functions.insert(handle, (module, kernel));
        // SAFETY: the caller's, for one handle.
        unsafe { answer(function, pointer_of(handle)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: c_uint,
    function: *mut c_void,
) -> c_int {
    call("cuFuncGetAttribute", Need::Context, |world, _| {
        if !world.functions.contains_key(&handle_of(function)) {
            return world.refuse(code::INVALID_HANDLE, "an attribute of an unloaded function".to_owned());
        }
        let found = match attribute {
            // Threads per block, shared bytes, local bytes, registers.
            0 => 1024,
            1 | 3 => 0,
            4 => 32,
            _ => return Err(code::INVALID_VALUE),
        };
        // SAFETY: the caller's, for one number.
        unsafe { answer(value, found) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: *mut c_void,
    threads: c_int,
    _shared_bytes: usize,
) -> c_int {
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", Need::Context, |world, _| {
        if !world.functions.contains_key(&handle_of(function)) {
            return world.refuse(code::INVALID_HANDLE, "the occupancy of an unloaded function".to_owned());
        }
        if !(1..=1024).contains(&threads) {
            return Err(code::INVALID_VALUE);
        }
        // As with 32 registers per thread.
        // SAFETY: the caller's, for one number.
        unsafe { answer(blocks, 2048 / threads) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _shared_bytes: c_uint,
    stream: *mut c_void,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> c_int {
    call("cuLaunchKernel", Need::Context, |world, device| {
        let Some((module, kernel)) = world.functions.get(&handle_of(function)).copied() else {
            return world.refuse(code::INVALID_HANDLE, "a launch of an unloaded function".to_owned());
        };
        let flat = (grid_y, grid_z, block_y, block_z) == (1, 1, 1, 1);
        if !flat || grid_x == 0 || !(1..=1024).contains(&block_x) || params.is_null() || !extra.is_null() {
            return world
                .refuse(code::INVALID_VALUE, format!("a launch of {grid_x} CTAs of {block_x} threads"));
        }
        // SAFETY: the caller's: one pointer per parameter, and these kernels have one parameter.
        let source = unsafe { *params }.cast::<u8>();
        let mut args = vec![0_u64; kernel.args_bytes.div_ceil(8)];
        // SAFETY: the parameter has the size that the kernel was registered with, and so has `args`.
        unsafe { args.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(source, kernel.args_bytes) };
        // A word that equals an address of the device's, or of registered memory, counts as a pointer: the
        // whole allocation behind it, or the registered byte, is in use.
        let leads = args.iter().filter_map(|word| match world.memory.allocation_of(*word) {
            Some((base, _)) => Some((base, world.memory.allocations[&base].bytes)),
            None if !world.memory.is_device(*word) && world.memory.is_registered((*word, 1)) => {
                Some((*word, 1))
            }
            None => None,
        });
        let touches = leads.collect();
        let what = What::Kernel { module, kernel, grid: grid_x, block: block_x, args };
        world.submit("cuLaunchKernel", device, handle_of(stream), Op { what, touches })
    })
}

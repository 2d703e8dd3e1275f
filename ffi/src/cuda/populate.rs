//! Makes an arena's pages before it is registered.
//!
//! The driver makes missing pages one after the other, while it holds a lock that every process of the
//! machine shares. Gigabytes take minutes, and every other CUDA call of the machine waits
//! (NVIDIA/TensorRT-LLM#15431). So our threads make the pages first, in parallel, and the driver only
//! pins them. No byte changes.
//!
//! ```text
//!   arena   ├─ 64 MiB ─┼─ 64 MiB ─┼─ … ─┤      each thread takes the next piece
//! ```

use super::error::CudaError;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// The bytes that a thread makes at a time: small enough to show progress, and whole huge pages, so that
/// no two threads want the same one.
const PIECE_BYTES: usize = 64 << 20;

/// Runs `act` for each number below `count` by at most `threads` threads, until one fails. `told`
/// receives each answer, in the order of their arrival.
///
/// # Errors
/// [`CudaError::Thread`]: no thread can be started.
pub(super) fn by_threads<T: Send, E: Send>(
    count: usize,
    threads: usize,
    act: impl Fn(usize) -> Result<T, E> + Sync,
    mut told: impl FnMut(Result<T, E>),
) -> Result<(), CudaError> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (tell, hear) = mpsc::channel();
    let serve = |tell: mpsc::Sender<_>| {
        // Relaxed, here and below: the results travel through the channel.
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            let answer = act(at);
            stop.fetch_or(answer.is_err(), Ordering::Relaxed);
            if tell.send(answer).is_err() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        let mut answer = Ok(());
        for started in 0..threads.min(count) {
            let (tell, serve) = (tell.clone(), &serve);
            let thread = thread::Builder::new().name("kvstrata-pin".to_owned());
            match thread.spawn_scoped(scope, move || serve(tell)) {
                Ok(_) => {}
                // Fewer threads do it, too.
                Err(_) if started > 0 => break,
                Err(error) => answer = Err(CudaError::Thread { errno: error.raw_os_error().unwrap_or(0) }),
            }
        }
        drop(tell);
        // Ends when the last thread has ended: everything that was begun is reported.
        hear.into_iter().for_each(&mut told);
        answer
    })
}

/// Makes the pages of memory of ours, as far as the system can; `told` receives bytes. Pages that cannot
/// be made here are left to the driver, which reports the reason.
///
/// # Errors
/// As for [`by_threads`].
///
/// # Safety
/// The bytes are mapped and writable. If they are `fresh`, no one else reaches them.
pub(super) unsafe fn populate(
    address: usize,
    bytes: usize,
    fresh: bool,
    threads: usize,
    mut told: impl FnMut(usize),
) -> Result<(), CudaError> {
    let piece = |at: usize| (address + at * PIECE_BYTES, PIECE_BYTES.min(bytes - at * PIECE_BYTES));
    let make = |at| {
        let (address, bytes) = piece(at);
        match advise(address, bytes) {
            // Linux before 5.14. Pages that are not fresh are left alone: writing a byte back may undo
            // their owner's concurrent write.
            Err(libc::EINVAL) if fresh => {
                // SAFETY: the caller's promise.
                unsafe { touch(address, bytes) };
                Ok(bytes)
            }
            Err(errno) => Err(errno),
            Ok(()) => Ok(bytes),
        }
    };
    by_threads(bytes.div_ceil(PIECE_BYTES), threads, make, |made| {
        if let Ok(bytes) = made {
            told(bytes);
        }
    })
}

/// Has the kernel make pages as a write would make them, but without a write.
#[cfg(target_os = "linux")]
fn advise(address: usize, bytes: usize) -> Result<(), i32> {
    let start = core::ptr::with_exposed_provenance_mut(address);
    // SAFETY: memory of ours (the callers' promise); the advice changes no byte.
    match unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

#[cfg(not(target_os = "linux"))]
fn advise(_address: usize, _bytes: usize) -> Result<(), i32> {
    Err(libc::EINVAL)
}

/// Writes the zero that a fresh page has anyway, once every 4 KiB.
///
/// # Safety
/// The bytes are mapped, writable, zero, and only ours.
unsafe fn touch(address: usize, bytes: usize) {
    for at in (address..address + bytes).step_by(4096) {
        // SAFETY: the caller's promise. Volatile: nothing reads the zero, and the write is needed for the
        // page alone.
        unsafe { core::ptr::with_exposed_provenance_mut::<u8>(at).write_volatile(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::HostArena;

    /// Counts the pages of the memory that are present.
    #[cfg(target_os = "linux")]
    fn resident(address: usize, bytes: usize) -> usize {
        let mut pages = vec![0_u8; bytes.div_ceil(4096)];
        let start = core::ptr::with_exposed_provenance_mut(address);
        // SAFETY: queries the pages of a live mapping; `pages` is ours, one byte per page.
        assert_eq!(unsafe { libc::mincore(start, bytes, pages.as_mut_ptr()) }, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn populated_pages_are_resident_and_keep_their_bytes() {
        const BYTES: usize = 6 << 20;
        for touched in [false, true] {
            let arena = HostArena::new(BYTES >> 20, 1 << 20).expect("an arena");
            let address = arena.mapped().expect("a mapping").0.as_ptr().expose_provenance();
            if touched {
                assert_eq!(resident(address, BYTES), 0);
                // SAFETY: fresh, and ours alone.
                unsafe { touch(address, BYTES) };
            } else {
                arena.write(1).expect("free").fill(7);
                let mut told = 0;
                // SAFETY: an arena's memory.
                unsafe { populate(address, BYTES, false, 3, |bytes| told += bytes) }.expect("threads");
                if told == 0 {
                    println!("SKIP populate: the kernel has no MADV_POPULATE_WRITE");
                    continue;
                }
                assert_eq!(told, BYTES);
            }
            assert_eq!(resident(address, BYTES), BYTES / 4096);
            for block in 0..6 {
                let byte = if block == 1 && !touched { 7 } else { 0 };
                assert!(arena.read(block).expect("free").iter().all(|found| *found == byte), "{block}");
            }
        }
    }

    #[test]
    fn first_populate_failure_stops_the_other_threads() {
        let mut heard = Vec::new();
        by_threads(1000, 1, |at| if at < 3 { Ok(at) } else { Err(at) }, |answer| heard.push(answer))
            .expect("a thread");
        assert_eq!(heard, [Ok(0), Ok(1), Ok(2), Err(3)]);
        by_threads(0, 4, |_| Err::<(), ()>(()), |_| panic!("nothing to do")).expect("nothing to do");
    }
}

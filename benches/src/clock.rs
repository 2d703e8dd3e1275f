//! The clock of one thread's own work.
//!
//! An operation that never sleeps costs the processor time of its thread. On a shared machine, wall time
//! adds the turns of other programs; this clock does not. (It still shows their effect on the caches,
//! and a hypervisor's on the processor.)

use std::time::Duration;

/// Returns the processor time of the calling thread, from an arbitrary origin;
/// only differences mean something.
#[cfg(target_os = "linux")]
pub fn thread_time() -> Duration {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of all threads of the process.
#[cfg(target_os = "linux")]
pub fn process_time() -> Duration {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(target_os = "linux")]
fn time_of(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `now`, which is valid and ours.
    let status = unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert_eq!(status, 0, "Linux has had both clocks since 2.6.12");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Returns wall time, on systems without such a clock that we know of.
#[cfg(not(target_os = "linux"))]
pub fn thread_time() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Returns wall time as well.
#[cfg(not(target_os = "linux"))]
pub fn process_time() -> Duration {
    thread_time()
}

/// Keeps this thread on one core, if there is such a core and the system allows it.
pub fn pin_to(core: usize) {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: an all-zero set is a valid, empty one.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // SAFETY: the set is ours, and the number below the set's size.
        unsafe { libc::CPU_SET(core % cores.min(1024), &mut set) };
        // SAFETY: the kernel reads the set, which lives. A refusal leaves the thread where the scheduler
        // puts it.
        let _ = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = core;
}

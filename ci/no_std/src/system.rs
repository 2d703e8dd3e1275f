//! The calls of the operating system, without libc: start, write, exit.

use core::arch::{asm, global_asm};
use core::fmt::{self, Write};
use core::panic::PanicInfo;

// The kernel enters here with the stack pointer at argc, 16-byte aligned; it must be so at a call, too.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start",
    "_start:",
    "xor %ebp, %ebp",
    "and $-16, %rsp",
    "call program",
    "ud2",
    options(att_syntax)
);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x30, xzr", "bl program", "brk #1");

const STDERR: usize = 2;

/// Ends the process at once.
pub fn exit(code: usize) -> ! {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: exit_group (231) takes one integer and does not return.
    unsafe {
        asm!("syscall", in("rax") 231, in("rdi") code, options(noreturn, nostack))
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: exit_group (94) takes one integer and does not return.
    unsafe {
        asm!("svc #0", in("x8") 94, in("x0") code, options(noreturn, nostack))
    }
}

/// Writes a line to stderr. It may be cut short, which does not matter here.
pub fn print(line: fmt::Arguments<'_>) {
    // `write_str` below never fails.
    let _ = Stderr.write_fmt(line);
}

struct Stderr;

impl Write for Stderr {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: write (1) reads `text.len()` bytes at `text`, which live until it returns; the kernel
        // overwrites rax, rcx and r11.
        unsafe {
            asm!("syscall", inlateout("rax") 1_usize => _, in("rdi") STDERR, in("rsi") text.as_ptr(),
                in("rdx") text.len(), lateout("rcx") _, lateout("r11") _, options(nostack, readonly))
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: write (64) reads `text.len()` bytes at `text`, which live until it returns; the kernel
        // overwrites x0.
        unsafe {
            asm!("svc #0", in("x8") 64, inlateout("x0") STDERR => _, in("x1") text.as_ptr(),
                in("x2") text.len(), options(nostack, readonly))
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    print(format_args!("{info}\n"));
    exit(101)
}

/// `core` and `alloc` as rustup ships them are built to unwind, and refer to these two symbols. They are
/// never called: this program aborts on panic.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// See [`rust_eh_personality`].
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit(102)
}

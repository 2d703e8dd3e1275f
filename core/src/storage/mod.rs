//! Where blocks can live: the ports that memory, devices, files and remote stores implement.
//!
//! The core does arithmetic on addresses and never follows one. A storage is therefore no more than a
//! kind, a base address in *its own* address space and a size. Its implementer moves the bytes in and
//! out (`kvstrata-ffi` for host arenas, devices and files). Address spaces are not comparable: the same
//! number names one byte on a device, another in the host's memory and a third in a file.
//!
//! ```text
//!   tier  kind            base_address             bytes move through
//!   G1    Device {n}      device virtual address   DevicePort
//!   G2    Pinned, System  host virtual address     plain loads and stores of the owner
//!   G3    Disk {n}        0 (offset in the file)   the ring of its volume
//!   G4    Remote {n}      the far side's own       an opaque blob store
//! ```
//!
//! Invariants:
//!
//! - **I1** `base_address() + size_bytes()` does not overflow `u64`, and neither changes while the
//!   storage lives.
//! - **I2** The bytes stay in place for as long as the storage lives: it owns them, or
//!   ([`ByoStorage`]) holds their owner.

mod byo;
mod kind;
mod port;
#[cfg(test)]
mod tests;

pub use byo::{ByoError, ByoStorage};
pub use kind::StorageKind;
pub use port::{DeviceError, DevicePort};

/// A stretch of bytes that blocks are laid out in.
pub trait Storage: core::fmt::Debug + Send + Sync {
    /// The kind of memory or medium.
    fn kind(&self) -> StorageKind;

    /// Address of byte 0, in the storage's own address space.
    fn base_address(&self) -> u64;

    /// Size in bytes.
    fn size_bytes(&self) -> u64;
}

impl<S: Storage + ?Sized> Storage for alloc::sync::Arc<S> {
    fn kind(&self) -> StorageKind {
        (**self).kind()
    }

    fn base_address(&self) -> u64 {
        (**self).base_address()
    }

    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }
}

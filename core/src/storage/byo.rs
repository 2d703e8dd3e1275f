//! Bring-your-own memory: a stretch of bytes from another allocator, kept alive by its owner.

use super::{Storage, StorageKind};
use core::fmt;

/// Memory that an engine or a framework allocated: an address, a size, and an owner that keeps it alive.
///
/// The owner is anything whose drop gives the memory back: an `Arc` of a tensor, a mapping, a Python
/// object. It is never looked into, only held (I2). Making one is safe, since nothing in this crate
/// follows an address. Code that does follow it relies on the maker's promise.
///
/// ```
/// use kvstrata_core::storage::{ByoStorage, Storage, StorageKind};
/// let owner = vec![0u64; 512].into_boxed_slice();
/// let address = owner.as_ptr() as u64;
/// let storage = ByoStorage::new(owner, StorageKind::System, address, 4096, 8)?;
/// assert_eq!((storage.kind(), storage.size_bytes()), (StorageKind::System, 4096));
/// # Ok::<(), kvstrata_core::storage::ByoError>(())
/// ```
pub struct ByoStorage<O> {
    owner: O,
    kind: StorageKind,
    address: u64,
    size_bytes: u64,
}

impl<O> ByoStorage<O> {
    /// Wraps `size_bytes` at `address`, which must be a multiple of `alignment` (bytes, a
    /// power of two; 1 for any).
    ///
    /// Address 0 is refused for memory ([`StorageKind::is_memory`]) and is the first byte of anything else.
    ///
    /// # Errors
    ///
    /// [`ByoError`], which names the field, its value and the rule; the owner is dropped.
    pub fn new(
        owner: O,
        kind: StorageKind,
        address: u64,
        size_bytes: u64,
        alignment: u64,
    ) -> Result<ByoStorage<O>, ByoError> {
        if !alignment.is_power_of_two() {
            return Err(ByoError::AlignmentNotPowerOfTwo { alignment });
        }
        if address == 0 && kind.is_memory() {
            return Err(ByoError::NullAddress { kind });
        }
        if size_bytes == 0 {
            return Err(ByoError::ZeroSize);
        }
        if address.checked_add(size_bytes).is_none() {
            return Err(ByoError::Overflow { address, size_bytes });
        }
        if address & (alignment - 1) != 0 {
            return Err(ByoError::Misaligned { address, alignment });
        }
        Ok(ByoStorage { owner, kind, address, size_bytes })
    }

    /// The owner, which keeps the memory alive.
    pub fn owner(&self) -> &O {
        &self.owner
    }

    /// Ends the storage and returns the owner.
    pub fn into_owner(self) -> O {
        self.owner
    }
}

impl<O: Send + Sync> Storage for ByoStorage<O> {
    fn kind(&self) -> StorageKind {
        self.kind
    }

    fn base_address(&self) -> u64 {
        self.address
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

impl<O> fmt::Debug for ByoStorage<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ByoStorage { owner: _, kind, address, size_bytes } = self;
        write!(f, "ByoStorage({kind} {address:#x} + {size_bytes})")
    }
}

/// The reason why memory was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByoError {
    /// `address` is 0.
    NullAddress {
        /// The kind as which it was offered.
        kind: StorageKind,
    },
    /// `size_bytes` is 0.
    ZeroSize,
    /// `address + size_bytes` does not fit into 64 bits.
    Overflow {
        /// The address.
        address: u64,
        /// The size.
        size_bytes: u64,
    },
    /// `alignment` is not a power of two.
    AlignmentNotPowerOfTwo {
        /// The requested alignment.
        alignment: u64,
    },
    /// `address` is not a multiple of `alignment`.
    Misaligned {
        /// The address.
        address: u64,
        /// The requested alignment.
        alignment: u64,
    },
}

impl fmt::Display for ByoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ByoError::NullAddress { kind } => {
                write!(f, "address = 0: {kind} memory starts at an address above 0")
            }
            ByoError::ZeroSize => f.write_str("size_bytes = 0: must be at least 1"),
            ByoError::Overflow { address, size_bytes } => {
                write!(f, "size_bytes = {size_bytes}: from address {address:#x} on, must end within 64 bits")
            }
            ByoError::AlignmentNotPowerOfTwo { alignment } => {
                write!(f, "alignment = {alignment}: must be a power of two (1 for any address)")
            }
            ByoError::Misaligned { address, alignment } => {
                write!(f, "address = {address:#x}: must be a multiple of {alignment}")
            }
        }
    }
}

impl core::error::Error for ByoError {}

//! Addresses: device memory, which is host memory under another number, and registered host memory.
//!
//! Invariants
//! - I1: no address is given out twice, nor the gap (a page) behind an allocation: an address outside of all
//!   allocations is out of bounds or freed. This does not hold if device addresses are the host's own
//!   ([`Double::plain_addresses`](crate::Double::plain_addresses)).
//! - I2: an allocation's bytes are freed only when no operation that could touch them is queued or
//!   running; memory that is freed too early is counted, and kept.

use crate::{FRESH, POISON};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;

const DEVICE_BASE: u64 = 0x0C01_0000_0000_0000;
const DEVICE_SPAN: u64 = 1 << 40;
const IMPORT_BASE: u64 = 0x0E01_0000_0000_0000;
const PAGE: u64 = 4096;

/// Device memory.
pub(crate) struct Allocation {
    pub(crate) device: u32,
    pub(crate) bytes: u64,
    /// Has the layout of [`layout`].
    data: *mut u8,
}

// SAFETY: plain memory, tied to no thread; code that touches it holds the world's lock, or executes an
// operation that a test asked for.
unsafe impl Send for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and given back once.
        unsafe { dealloc(self.data, layout(self.bytes)) };
    }
}

/// Returns a layout with the alignment of CUDA's allocations.
fn layout(bytes: u64) -> Layout {
    Layout::from_size_align(bytes as usize, 256).expect("a size of device memory")
}

/// A second address of another allocation.
pub(crate) struct Import {
    pub(crate) device: u32,
    pub(crate) bytes: u64,
    pub(crate) of: u64,
}

pub(crate) struct Memory {
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) imports: BTreeMap<u64, Import>,
    /// Host address → bytes and device.
    pub(crate) registered: BTreeMap<u64, (u64, u32)>,
    /// Device addresses are the host's.
    pub(crate) plain: bool,
    /// Bytes handed out so far.
    reached: u64,
}

/// The memory behind an address.
pub(crate) enum Place {
    Device(*mut u8),
    Host(*mut u8),
}

impl Place {
    pub(crate) fn pointer(&self) -> *mut u8 {
        match *self {
            Place::Device(pointer) | Place::Host(pointer) => pointer,
        }
    }
}

/// A stretch of addresses.
pub(crate) type Span = (u64, u64);

pub(crate) fn overlap(a: Span, b: Span) -> bool {
    a.0 < b.0.saturating_add(b.1) && b.0 < a.0.saturating_add(a.1)
}

impl Memory {
    pub(crate) const fn new() -> Memory {
        Memory {
            allocations: BTreeMap::new(),
            imports: BTreeMap::new(),
            registered: BTreeMap::new(),
            plain: false,
            reached: 0,
        }
    }

    pub(crate) fn used_bytes(&self, device: u32) -> u64 {
        self.allocations.values().filter(|one| one.device == device).map(|one| one.bytes).sum()
    }

    fn fresh(&mut self, bytes: u64) -> u64 {
        let offset = self.reached;
        self.reached += bytes.next_multiple_of(PAGE) + PAGE;
        offset
    }

    /// Allocates device memory. `None` if the host does not have it.
    pub(crate) fn allocate(&mut self, device: u32, bytes: u64) -> Option<u64> {
        // SAFETY: at least one byte; the caller ensures that.
        let data = unsafe { alloc(layout(bytes)) };
        if data.is_null() {
            return None;
        }
        // SAFETY: as many bytes as were just allocated.
        unsafe { data.write_bytes(FRESH, bytes as usize) };
        let base = match self.plain {
            true => data.expose_provenance() as u64,
            false => DEVICE_BASE + u64::from(device) * DEVICE_SPAN + self.fresh(bytes),
        };
        self.allocations.insert(base, Allocation { device, bytes, data });
        Some(base)
    }

    pub(crate) fn import(&mut self, device: u32, of: u64) -> Option<u64> {
        let bytes = self.allocations.get(&of)?.bytes;
        let base = IMPORT_BASE + self.fresh(bytes);
        self.imports.insert(base, Import { device, bytes, of });
        Some(base)
    }

    /// Whether the number is an address of the double's: live or not; if device addresses are the host's,
    /// only live ones.
    pub(crate) fn is_device(&self, address: u64) -> bool {
        let own = (DEVICE_BASE..IMPORT_BASE + DEVICE_SPAN).contains(&address);
        own || (self.plain && self.allocation_of(address).is_some())
    }

    /// Returns the allocation that contains this address; for an import, the imported allocation.
    pub(crate) fn allocation_of(&self, address: u64) -> Option<(u64, u64)> {
        if let Some((base, import)) = self.imports.range(..=address).next_back()
            && address - base < import.bytes
        {
            let inner = import.of + (address - base);
            return self.allocations.contains_key(&import.of).then_some((import.of, inner));
        }
        let (base, allocation) = self.allocations.range(..=address).next_back()?;
        (address - base < allocation.bytes).then_some((*base, address))
    }

    /// Returns the bytes behind a stretch of addresses; `None` if it is not inside one allocation.
    pub(crate) fn place(&self, span: Span) -> Option<Place> {
        let (address, bytes) = span;
        if !self.is_device(address) {
            return Some(Place::Host(core::ptr::with_exposed_provenance_mut(address as usize)));
        }
        let (base, inner) = self.allocation_of(address)?;
        let allocation = self.allocations.get(&base)?;
        let offset = inner - base;
        // SAFETY: `offset` is inside the allocation (`allocation_of`).
        (offset + bytes <= allocation.bytes)
            .then(|| Place::Device(unsafe { allocation.data.add(offset as usize) }))
    }

    /// Whether all of a stretch of host memory is registered, by one registration.
    pub(crate) fn is_registered(&self, span: Span) -> bool {
        self.registered_with(span).is_some()
    }

    /// Returns the device with which one registration has registered all of a stretch.
    pub(crate) fn registered_with(&self, span: Span) -> Option<u32> {
        let (base, (bytes, device)) = self.registered.range(..=span.0).next_back()?;
        let offset = span.0 - base;
        (offset < *bytes && span.1 <= bytes - offset).then_some(*device)
    }

    /// Fills the memory behind a stretch of addresses.
    pub(crate) fn poison(&self, span: Span) {
        if let Some(place) = self.place(span) {
            // SAFETY: inside an allocation, or host memory that its owner has handed to the device until
            // the copy is executed.
            unsafe { place.pointer().write_bytes(POISON, span.1 as usize) };
        }
    }
}

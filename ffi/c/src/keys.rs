//! Keys and entries of a caller, checked.

use crate::status::Failure;
use crate::text::array;
use kvstrata::SequenceHash;
use kvstrata::backend::Span;
use kvstrata::store::Namespace;
use std::ffi::c_void;

/// The longest key, in bytes. A longer one is taken for a length that was never set.
pub const KVS_MAX_KEY_BYTES: u32 = 65536;

/// A key: any bytes, which name bytes that never change.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct kvs_key {
    /// The first byte.
    pub key: *const c_void,
    /// The number of bytes: 1 to KVS_MAX_KEY_BYTES.
    pub key_bytes: usize,
}

/// A key, and the memory of its bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct kvs_entry {
    /// The key's first byte. The key is copied at the call.
    pub key: *const c_void,
    /// The number of the key's bytes: 1 to KVS_MAX_KEY_BYTES.
    pub key_bytes: usize,
    /// The memory: a store reads it, a load writes it. At a page boundary, and without a host tier, bytes
    /// go straight between this memory and the disk; otherwise they are copied once.
    pub data: *mut c_void,
    /// The number of bytes: at least 1, at most the largest of store.sizes. A load names as many as were
    /// stored.
    pub bytes: usize,
}

/// Returns the hash of a key.
///
/// # Safety
/// C2, for the bytes of the key.
pub(crate) unsafe fn hash(
    namespace: &Namespace,
    (array_name, index): (&str, usize),
    key: *const c_void,
    key_bytes: usize,
) -> Result<SequenceHash, Failure> {
    if key_bytes == 0 || key_bytes > KVS_MAX_KEY_BYTES as usize {
        return Err(Failure::invalid(format!(
            "{array_name}[{index}].key_bytes: {key_bytes}; a key has 1 to {KVS_MAX_KEY_BYTES} bytes"
        )));
    }
    if key.is_null() {
        return Err(Failure::invalid(format!("{array_name}[{index}].key: NULL; give a key")));
    }
    // SAFETY: as this function's, and the checks.
    let bytes = unsafe { std::slice::from_raw_parts(key.cast(), key_bytes) };
    Ok(namespace.key(bytes))
}

/// Returns the hashes of keys.
///
/// # Safety
/// C2, for the array and for each key's bytes.
pub(crate) unsafe fn hashes(
    namespace: &Namespace,
    keys: *const kvs_key,
    count: usize,
) -> Result<impl Iterator<Item = Result<SequenceHash, Failure>>, Failure> {
    // SAFETY: as this function's.
    let keys = unsafe { array("keys", keys, count) }?;
    let hash = move |(index, key): (usize, &kvs_key)| {
        // SAFETY: as this function's; the iterator is used during the call.
        unsafe { hash(namespace, ("keys", index), key.key, key.key_bytes) }
    };
    Ok(keys.iter().enumerate().map(hash))
}

/// Returns the hashes and the memory of entries.
///
/// # Safety
/// C2, for the array and for each key's bytes.
pub(crate) unsafe fn entries(
    namespace: &Namespace,
    entries: *const kvs_entry,
    count: usize,
) -> Result<(Vec<SequenceHash>, Vec<Span>), Failure> {
    // SAFETY: as this function's.
    let entries = unsafe { array("entries", entries, count) }?;
    let mut both = (Vec::with_capacity(count), Vec::with_capacity(count));
    for (index, entry) in entries.iter().enumerate() {
        // SAFETY: as this function's.
        both.0.push(unsafe { hash(namespace, ("entries", index), entry.key, entry.key_bytes) }?);
        both.1.push(Span::new(entry.data.cast(), entry.bytes).ok_or_else(|| {
            let (field, value) = if entry.bytes == 0 { ("bytes", "0") } else { ("data", "NULL") };
            Failure::invalid(format!("entries[{index}].{field}: {value}; give memory of at least 1 byte"))
        })?);
    }
    Ok(both)
}

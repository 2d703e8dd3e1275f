//! Lookups: they touch no device, take no lock of the store, and are no use of a block.

use crate::edge::edge;
use crate::keys::{hashes, kvs_key};
use crate::options::kvs_batch_options;
use crate::sized::read;
use crate::status::{Failure, kvs_status};
use crate::store::{Shared, kvs_store, store};
use crate::text::{check_array, check_out};
use kvstrata::Tier;
use kvstrata::store::Namespace;
use std::sync::Arc;

/// A tier of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum kvs_tier {
    /// The key is in none.
    KVS_TIER_NONE = 0,
    /// Host memory of the store.
    KVS_TIER_HOST = 1,
    /// The disk.
    KVS_TIER_DISK = 2,
}

use kvs_tier::*;

/// Where a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct kvs_place {
    /// The number of its bytes; 0 if it is in no tier.
    pub bytes: u64,
    /// The tier from which a load would bring them.
    pub tier: kvs_tier,
    /// 0.
    pub reserved: u32,
}

/// Returns the store of a lookup, and the namespace of its keys.
///
/// # Safety
/// C1, C2 for the options, C3 for their strings.
unsafe fn looked_up<'a>(
    store: *const kvs_store,
    options: *const kvs_batch_options,
) -> Result<(&'a Arc<Shared>, Arc<Namespace>), Failure> {
    // SAFETY: C1.
    let shared = unsafe { self::store(store) }?;
    shared.check_open()?;
    // SAFETY: C2.
    let options = unsafe { read("options", options) }?;
    // SAFETY: C3.
    let namespace = unsafe { options.namespace(shared) }?;
    Ok((shared, namespace))
}

/// Answers for each key whether it can be loaded now. A key on its way to a tier is not there yet; while
/// the disk takes too long, its keys count as not there. A microsecond or so for each key, and no I/O.
///
/// keys, count: the keys.
/// options: lora and salt are read, nothing else; NULL: those of the settings.
/// found: receives count bytes: 1 if the key is there, otherwise 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_contains(
    store: *const kvs_store,
    keys: *const kvs_key,
    count: usize,
    options: *const kvs_batch_options,
    found: *mut u8,
) -> kvs_status {
    edge(|| {
        // SAFETY: C1, C2, C3.
        let (shared, namespace) = unsafe { looked_up(store, options) }?;
        if count > 0 {
            check_array("found", found, count)?;
        }
        // SAFETY: C2.
        for (index, hash) in unsafe { hashes(&namespace, keys, count) }?.enumerate() {
            let answer = u8::from(shared.store.contains(hash?));
            // SAFETY: C2: it has `count` bytes, and the index is less.
            let place = unsafe { found.add(index) };
            // SAFETY: C2.
            unsafe { place.write(answer) };
        }
        Ok(())
    })
}

/// Counts the leading keys that can be loaded now: the usable prefix of a sequence. It looks no further than
/// the first key that is not there. Otherwise like kvs_contains.
///
/// leading: receives the number of keys.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_leading(
    store: *const kvs_store,
    keys: *const kvs_key,
    count: usize,
    options: *const kvs_batch_options,
    leading: *mut usize,
) -> kvs_status {
    edge(|| {
        check_out("leading", leading)?;
        // SAFETY: C1, C2, C3.
        let (shared, namespace) = unsafe { looked_up(store, options) }?;
        let mut run = 0;
        // SAFETY: C2.
        for hash in unsafe { hashes(&namespace, keys, count) }? {
            if !shared.store.contains(hash?) {
                break;
            }
            run += 1;
        }
        // SAFETY: C2.
        unsafe { leading.write(run) };
        Ok(())
    })
}

/// Answers where each key is, and how many bytes it has. Otherwise like kvs_contains.
///
/// places: receives count answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_find(
    store: *const kvs_store,
    keys: *const kvs_key,
    count: usize,
    options: *const kvs_batch_options,
    places: *mut kvs_place,
) -> kvs_status {
    edge(|| {
        // SAFETY: C1, C2, C3.
        let (shared, namespace) = unsafe { looked_up(store, options) }?;
        if count > 0 {
            check_array("places", places, count)?;
        }
        // SAFETY: C2.
        for (index, hash) in unsafe { hashes(&namespace, keys, count) }?.enumerate() {
            let answer = match shared.store.find(hash?) {
                None => kvs_place { bytes: 0, tier: KVS_TIER_NONE, reserved: 0 },
                Some(found) => {
                    let tier = if found.tier == Tier::Host { KVS_TIER_HOST } else { KVS_TIER_DISK };
                    kvs_place { bytes: found.bytes as u64, tier, reserved: 0 }
                }
            };
            // SAFETY: C2: it has `count` places, and the index is less.
            let place = unsafe { places.add(index) };
            // SAFETY: C2.
            unsafe { place.write(answer) };
        }
        Ok(())
    })
}

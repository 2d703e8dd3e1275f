//! Options of a batch.

use crate::sized::SizeFirst;
use crate::status::Failure;
use crate::store::Shared;
use crate::text::string;
use kvstrata::store::{BatchOptions, Namespace, Until};
use kvstrata_ffi::disk::Urgency;
use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

/// Which loads go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum kvs_urgency {
    /// Before writes: a prefetch, for example. The default.
    KVS_ORDINARY = 0,
    /// A request waits for the bytes: before everything else.
    KVS_URGENT = 1,
}

/// When a store of bytes is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum kvs_until {
    /// When the disk has them, or host memory if there is no disk. The default.
    KVS_UNTIL_BELOW = 0,
    /// When host memory has them; the write to the disk goes on. Without a host tier as KVS_UNTIL_BELOW.
    KVS_UNTIL_HOST = 1,
}

/// Options of a batch. Zero the struct, then set the size and the other fields. The library copies it, and
/// the strings, at the call.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct kvs_batch_options {
    /// sizeof(kvs_batch_options).
    pub size: u32,
    /// A kvs_urgency, for loads.
    pub urgency: u32,
    /// A kvs_until, for stores.
    pub until: u32,
    /// The deadline, in milliseconds from now: transfers that have not begun are answered with
    /// KVS_MISS_LATE then. 0: that of the settings (deadline.onboard for loads, deadline.offload otherwise).
    pub within_ms: u32,
    /// Any value. The job's completion has it.
    pub user_data: u64,
    /// The LoRA adapter of the keys: the same key of another adapter is another entry. NULL: store.lora.
    pub lora: *const c_char,
    /// The salt of the keys: the same key under another salt is another entry. NULL: store.salt.
    pub salt: *const c_char,
}

// SAFETY: numbers and pointers, and 0 and NULL are the defaults: two numbers of 4 bytes in each of the first
// two units, then one field a unit.
unsafe impl SizeFirst for kvs_batch_options {
    const NAME: &'static str = "kvs_batch_options";
}

const ORDINARY: u32 = kvs_urgency::KVS_ORDINARY as u32;
const URGENT: u32 = kvs_urgency::KVS_URGENT as u32;
const UNTIL_BELOW: u32 = kvs_until::KVS_UNTIL_BELOW as u32;
const UNTIL_HOST: u32 = kvs_until::KVS_UNTIL_HOST as u32;

impl kvs_batch_options {
    /// Returns the namespace of the keys.
    ///
    /// # Safety
    /// C3, for both strings.
    pub(crate) unsafe fn namespace(&self, store: &Shared) -> Result<Arc<Namespace>, Failure> {
        // SAFETY: as this function's.
        let lora = unsafe { string("options->lora", self.lora) }?;
        // SAFETY: as this function's.
        let salt = unsafe { string("options->salt", self.salt) }?;
        Ok(store.namespaces.of(lora, salt))
    }

    pub(crate) fn batch(&self) -> Result<BatchOptions, Failure> {
        let refused = |field: &str, value: u32, choice: &str| {
            Err(Failure::invalid(format!("options->{field}: {value}; give {choice}")))
        };
        let mut batch = BatchOptions::default();
        match self.urgency {
            ORDINARY => {}
            URGENT => batch = batch.urgency(Urgency::Urgent),
            other => return refused("urgency", other, "KVS_ORDINARY or KVS_URGENT"),
        }
        match self.until {
            UNTIL_BELOW => {}
            UNTIL_HOST => batch = batch.until(Until::Host),
            other => return refused("until", other, "KVS_UNTIL_BELOW or KVS_UNTIL_HOST"),
        }
        if self.within_ms > 0 {
            batch = batch.within(Duration::from_millis(self.within_ms.into()));
        }
        Ok(batch)
    }
}

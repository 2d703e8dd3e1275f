//! Opening a store.

use crate::edge::edge;
use crate::sized::{SizeFirst, read};
use crate::status::kvs_status::{KVS_IO, KVS_MEMORY, KVS_SETTINGS, KVS_SYSTEM};
use crate::status::{Failure, kvs_status};
use crate::store::kvs_store;
use crate::text::{check_out, string};
use kvstrata::ManagerConfig;
use kvstrata::store::{KvStore, StoreError};
use std::ffi::c_char;
use std::ptr;

/// A flag of kvs_open_options: variables of the environment (KVSTRATA_DISK_BYTES and so on) and the file that
/// KVSTRATA_CONFIG names are settings, too. They win over the text.
pub const KVS_OPEN_ENVIRONMENT: u32 = 1;

/// Options of kvs_open. Zero the struct, then set the size.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct kvs_open_options {
    /// sizeof(kvs_open_options).
    pub size: u32,
    /// 0, or KVS_OPEN_ENVIRONMENT.
    pub flags: u32,
}

// SAFETY: two numbers in one unit, and 0 is the second one's default.
unsafe impl SizeFirst for kvs_open_options {
    const NAME: &'static str = "kvs_open_options";
}

/// Opens a store. It may take seconds: memory is mapped, and volumes are read.
///
/// settings_toml: the settings as the text of a TOML file, UTF-8; NULL: none. The sections are those of
/// docs/settings.md: store, host, disk, hash, deadline, transfer, metrics, runtime. The store section must
/// describe the bytes: model, revision, dtype, layout, span and ranks.
/// options: NULL: the defaults.
/// store: receives the handle, or NULL.
/// Returns KVS_OK, KVS_INVALID, KVS_SETTINGS, KVS_MEMORY, KVS_IO or KVS_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvs_open(
    settings_toml: *const c_char,
    options: *const kvs_open_options,
    store: *mut *mut kvs_store,
) -> kvs_status {
    edge(|| {
        check_out("store", store)?;
        // SAFETY: C2.
        unsafe { store.write(ptr::null_mut()) };
        // SAFETY: C2.
        let options = unsafe { read("options", options) }?;
        // SAFETY: C3.
        let text = unsafe { string("settings_toml", settings_toml) }?;
        let opened = Box::new(open(text, options.flags)?);
        // SAFETY: C2.
        unsafe { store.write(Box::into_raw(opened)) };
        Ok(())
    })
}

fn open(text: Option<&str>, flags: u32) -> Result<kvs_store, Failure> {
    if flags & !KVS_OPEN_ENVIRONMENT != 0 {
        return Err(Failure::invalid(format!("options->flags: {flags:#x}; give 0 or KVS_OPEN_ENVIRONMENT")));
    }
    let mut config = ManagerConfig::builder();
    if let Some(text) = text {
        config = config.toml("settings_toml", text);
    }
    if flags & KVS_OPEN_ENVIRONMENT != 0 {
        config = config.environment();
    }
    let config = config.build().map_err(|error| Failure::new(KVS_SETTINGS, error.to_string()))?;
    let opened = KvStore::open(&config).map_err(|error| Failure::new(status(&error), error.to_string()))?;
    kvs_store::new(opened).map_err(|error| Failure::system("cannot make an eventfd", &error))
}

fn status(error: &StoreError) -> kvs_status {
    match error {
        StoreError::Room { .. } | StoreError::Memory { .. } => KVS_MEMORY,
        StoreError::Disk { .. } | StoreError::HashKey(_) => KVS_IO,
        StoreError::Threads { .. } | StoreError::Metrics { .. } => KVS_SYSTEM,
        _ => KVS_SETTINGS,
    }
}

//! Tests that C cannot make: panics, and that names and sizes are those of the header. The contract as C sees
//! it is `ffi/c/tests/contract.c`.

use crate::client::kvs_completion;
use crate::client::{kvs_client, kvs_client_free, kvs_client_open, kvs_client_options, kvs_drain, kvs_wait};
use crate::client::{kvs_submit_load, kvs_submit_store};
use crate::close::{kvs_close, kvs_store_free};
use crate::edge::panics;
use crate::figures::{kvs_stats, kvs_store_stats};
use crate::keys::{kvs_entry, kvs_key};
use crate::last_error::kvs_last_error;
use crate::lookup::kvs_place;
use crate::open::{kvs_open, kvs_open_options};
use crate::options::kvs_batch_options;
use crate::outcome::{kvs_outcome, kvs_outcome_name};
use crate::status::kvs_status::{self, *};
use crate::status::kvs_status_name;
use std::ffi::{CStr, CString, c_char};
use std::ptr;

const SETTINGS: &CStr = c"[store]\nmodel = 'm'\nrevision = '1'\ndtype = 'd'\nlayout = 'l'\nspan = 16\n\
    ranks = '0of1'\nsizes = ['16K']\n[disk]\nbytes = '1M'\n";
const HEADER: &str = include_str!("../include/kvstrata.h");

fn message() -> String {
    let mut buffer = vec![0_u8; 1000];
    // SAFETY: the buffer is as long as it says.
    unsafe { kvs_last_error(buffer.as_mut_ptr().cast::<c_char>(), buffer.len()) };
    CStr::from_bytes_until_nul(&buffer).expect("a NUL").to_str().expect("UTF-8").to_owned()
}

/// A store and a client.
fn opened() -> (*mut crate::store::kvs_store, *mut kvs_client) {
    let (mut store, mut client) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a string, no options, and a place.
    assert_eq!(unsafe { kvs_open(SETTINGS.as_ptr(), ptr::null(), &mut store) }, KVS_OK, "{}", message());
    // SAFETY: a store, no options, and a place.
    assert_eq!(unsafe { kvs_client_open(store, ptr::null(), &mut client) }, KVS_OK, "{}", message());
    (store, client)
}

fn free(store: *mut crate::store::kvs_store, client: *mut kvs_client) {
    // SAFETY: a client that is not used any more.
    assert_eq!(unsafe { kvs_client_free(client, -1) }, KVS_OK, "{}", message());
    // SAFETY: a store.
    assert_eq!(unsafe { kvs_close(store, -1) }, KVS_OK, "{}", message());
    // SAFETY: a store that is not used any more.
    assert_eq!(unsafe { kvs_store_free(store) }, KVS_OK, "{}", message());
}

#[test]
fn panic_in_a_call_is_answered() {
    panics::at("edge");
    let mut store = ptr::null_mut();
    // SAFETY: a string, no options, and a place.
    assert_eq!(unsafe { kvs_open(SETTINGS.as_ptr(), ptr::null(), &mut store) }, KVS_PANIC);
    assert!(store.is_null());
    assert_eq!(message(), "a bug in kvstrata: on request, at edge; please report it");

    // The handles work on.
    let (store, client) = opened();
    let mut stats = kvs_store_stats { size: size_of::<kvs_store_stats>() as u32, ..zeroed() };
    panics::at("edge");
    // SAFETY: a store, and a place.
    assert_eq!(unsafe { kvs_stats(store, &mut stats) }, KVS_PANIC);
    // SAFETY: a store, and a place.
    assert_eq!(unsafe { kvs_stats(store, &mut stats) }, KVS_OK);
    free(store, client);
}

fn zeroed() -> kvs_store_stats {
    // SAFETY: numbers, for which zeroes are valid.
    unsafe { std::mem::zeroed() }
}

#[test]
fn end_of_a_client_waits_for_a_job_that_panicked() {
    for _ in 0..20 {
        let (store, client) = opened();
        let mut memory = vec![7_u8; 16 << 10];
        let (key, bytes) = (b"key".as_ptr().cast(), memory.len());
        let entry = kvs_entry { key, key_bytes: 3, data: memory.as_mut_ptr().cast(), bytes };
        let mut outcome = kvs_outcome::KVS_UNANSWERED;
        panics::at("submitted");
        // SAFETY: a client, an entry with memory that outlives it, and a place.
        let status =
            unsafe { kvs_submit_store(client, &entry, 1, ptr::null(), &mut outcome, ptr::null_mut()) };
        assert_eq!(status, KVS_PANIC);

        // The client works on, and the lost job is not reported.
        // SAFETY: as above.
        let status =
            unsafe { kvs_submit_load(client, &entry, 1, ptr::null(), ptr::null_mut(), ptr::null_mut()) };
        assert_eq!(status, KVS_OK, "{}", message());
        assert_eq!(drained(client), 1);
        assert_eq!(outcome, kvs_outcome::KVS_UNANSWERED);
        free(store, client);
        memory.fill(8);
    }
}

fn drained(client: *mut kvs_client) -> usize {
    let mut completions = Vec::<kvs_completion>::with_capacity(8);
    let (mut got, mut all) = (0, 0);
    while all == 0 {
        // SAFETY: a client.
        assert_eq!(unsafe { kvs_wait(client, 60_000) }, KVS_OK, "{}", message());
        // SAFETY: a client, room for eight, and a place.
        let status = unsafe { kvs_drain(client, completions.as_mut_ptr(), 8, &mut got) };
        assert_eq!(status, KVS_OK, "{}", message());
        all += got;
    }
    all
}

/// The numbers of a C enum of the header.
fn numbers(name: &str) -> Vec<(&'static str, i32)> {
    let (_, rest) = HEADER.split_once(&format!("enum {name}\n")).expect("the enum");
    let (body, _) = rest.split_once("};").expect("its end");
    let number = |line: &'static str| {
        let (name, number) = line.trim().strip_suffix(',')?.split_once(" = ")?;
        Some((name, number.parse().ok()?))
    };
    body.lines().filter_map(number).collect()
}

#[test]
fn names_are_those_of_the_header() {
    let statuses = numbers("kvs_status");
    assert_eq!(statuses.len(), kvs_status::KVS_PANIC as usize + 1);
    let told = |name: *const c_char| {
        // SAFETY: a string that is never freed.
        unsafe { CStr::from_ptr(name) }.to_str().expect("UTF-8")
    };
    for (name, number) in statuses {
        assert_eq!(told(kvs_status_name(number)), name);
    }
    let outcomes = numbers("kvs_outcome");
    assert_eq!(outcomes.len(), 21);
    for (name, number) in outcomes {
        assert_eq!(told(kvs_outcome_name(number as u8)), name);
    }
}

/// Programs have these sizes compiled in: a change of one of the last three needs another KVS_ABI_VERSION.
#[test]
fn sizes_of_structs_are_known() {
    assert_eq!(size_of::<kvs_open_options>(), 8);
    assert_eq!(size_of::<kvs_client_options>(), 24);
    assert_eq!(size_of::<kvs_batch_options>(), 40);
    assert_eq!(size_of::<kvs_store_stats>(), 176);
    assert_eq!([size_of::<kvs_key>(), size_of::<kvs_entry>()], [16, 32]);
    assert_eq!(size_of::<kvs_completion>(), 56);
    assert_eq!(size_of::<kvs_place>(), 16);
}

#[test]
fn string_that_is_not_text_is_refused() {
    let mut store = ptr::null_mut();
    let text = CString::new([b'#', 0xff]).expect("no NUL");
    // SAFETY: a string, no options, and a place.
    assert_eq!(unsafe { kvs_open(text.as_ptr(), ptr::null(), &mut store) }, KVS_INVALID);
    assert_eq!(message(), "settings_toml: not UTF-8 from byte 1 on; give UTF-8");
}

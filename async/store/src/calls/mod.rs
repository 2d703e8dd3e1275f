//! Calls: the handles and futures of a store.

pub(crate) mod attendant;
pub(crate) mod batch;
pub(crate) mod client;
pub(crate) mod options;
pub(crate) mod parts;
pub(crate) mod store;

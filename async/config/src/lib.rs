//! The settings of a kvstrata manager, and the geometries of models.
//!
//! | module | what |
//! |---|---|
//! | `settings` | [`ManagerConfig`]: files, variables, calls; checks; the reference |
//! | [`model`] | a model's geometry from its `config.json` |
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod address;
pub mod model;
#[doc(hidden)]
pub mod number;
mod settings;

pub use settings::*;

//! The settings of a kvstrata manager, and the geometries of models.
//!
//! | module | contents |
//! |---|---|
//! | `settings` | [`ManagerConfig`]: its sources (files, variables, calls), checks and reference |
//! | [`model`] | the geometry of a model, from its `config.json` |
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod address;
pub mod model;
#[doc(hidden)]
pub mod number;
mod settings;

pub use settings::*;

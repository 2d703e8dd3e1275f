//! The settings of a kvstrata manager, and the geometries of models.
//!
//! ```
//! use kvstrata_config::ManagerConfig;
//! use kvstrata_tiers::tier::Tier;
//!
//! let file = "model = \"llama-3-8b\"\n[host]\nbytes = \"4G\"\n";
//! let config = ManagerConfig::builder().toml("kvstrata.toml", file).device_blocks(256).build()?;
//! let group = &config.groups()[0];
//! assert_eq!((config.blocks_of(group, Tier::Device), config.blocks_of(group, Tier::Host)), (256, 2048));
//!
//! let wrong = ManagerConfig::builder().toml("kvstrata.toml", "[host]\nblock = 4\n").build();
//! assert!(wrong.is_err_and(|error| error.to_string().contains("host.block")));
//! # Ok::<(), kvstrata_config::ConfigError>(())
//! ```
//!
//! Settings come from a TOML file, from `KVSTRATA_*` variables and from the builder's calls; the later
//! ones are stronger. `docs/settings.md` is the reference, made from the same table.
//!
//! - [`ManagerConfig`]: all settings, checked; [`ManagerConfigBuilder`]: their sources
//! - [`ConfigError`]: each wrong setting, with its place, its value and the allowed ones
//! - [`Group`]: a group of layers, with its geometry
//! - [`model`]: the geometry of a model, from its `config.json`
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod address;
pub mod model;
#[doc(hidden)]
pub mod number;
mod settings;

pub use settings::*;

//! The settings of a manager: one table of them, values from files, variables and calls, and errors that name
//! setting, place and reason.
//!
//! ```text
//!   table.rs ──► Settings, defaults ─┐
//!      │    ──► builder calls ───────┤  builder: default ◄ file ◄ variable ◄ call
//!      │    ──► keys of files ───────┤      │ single values, then conflicts
//!      │    ──► KVSTRATA_… ──────────┘      ▼
//!      └──────► reference             ManagerConfig (checked; read-only)
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `table.rs`, `lists.rs` | every setting: key, type, default, allowed values, description; the lists |
//! | `kind/`, `words.rs` | reading, bounds and writing of values; values with names |
//! | `raw.rs` | a value before its setting reads it |
//! | `draft.rs` | settings under construction, and the origin of each value |
//! | `builder.rs`, `file.rs`, `variables.rs` | the origins of values, and their order of strength |
//! | `geometry.rs` | groups of layers, from the model, the geometry and `[[group]]` |
//! | `block.rs` | the layout of a block in a tier; blocks and bytes of each group there |
//! | `model_file.rs` | groups of layers, from a model's `config.json` |
//! | `check.rs` | values that follow from others, and conflicts between settings |
//! | `error.rs`, `nearest.rs` | errors with key, value, place and allowed values; suggestions |
//! | `print.rs`, `reference.rs` | a configuration as a table and as TOML; the reference |
//!
//! Invariants
//! - I1: a [`ManagerConfig`] has passed every check. Only the builder makes one, and it cannot be changed.
//! - I2: reading the TOML of a configuration ([`ManagerConfig::to_toml`]) gives the same configuration.

mod block;
mod builder;
mod check;
mod draft;
mod error;
mod file;
mod geometry;
mod kind;
mod lists;
mod model_file;
mod nearest;
mod print;
mod raw;
mod reference;
mod table;
#[cfg(test)]
mod tests;
mod variables;
mod words;

pub use builder::ManagerConfigBuilder;
pub use error::{ConfigError, Fault, Origin};
pub use geometry::Group;
pub use lists::{GroupSettings, TenantSettings};
pub use reference::{Entry, keys, markdown, reference, text};
pub use table::{
    DeadlineSettings, DeviceSettings, DiskSettings, GeometrySettings, HostSettings, IdleSettings,
    IterationSettings, MetricsSettings, OffloadSettings, OnboardSettings, PrefetchSettings, QuotaSettings,
    RuntimeSettings, Settings, StoreSettings, TransferSettings, WatermarkSettings,
};
pub use variables::CONFIG_VARIABLE;
pub use words::{DeviceKind, DiskFill, GroupKind, HashFunction, Verify, WriteMode};

use block::Shape;
use draft::Origins;
#[doc(hidden)]
pub use kind::bytes_text;
#[doc(hidden)]
pub use kind::time;
use kvstrata_tiers::Tier;
use std::ops::Deref;

/// The checked settings of a manager. It dereferences to [`Settings`], which has them as fields.
///
/// ```
/// use kvstrata_config::ManagerConfig;
/// let config = ManagerConfig::builder()
///     .toml("kvstrata.toml", "model = \"llama-3-70b\"\ngeometry.tp = 4\n[device]\nbytes = \"1G\"\n")
///     .variables([("KVSTRATA_HOST_BYTES", "4G")])
///     .idle_host_after(Some(200))
///     .build()?;
/// assert_eq!(config.groups()[0].block_bytes(), 1_310_720);
/// assert_eq!((config.device.blocks, config.host.blocks), (819, 3276));
/// assert_eq!(config.origin("host.bytes").to_string(), "variable KVSTRATA_HOST_BYTES");
///
/// let error = ManagerConfig::builder().toml("kvstrata.toml", "[device]\nblocks = 0").build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "device.blocks = 0 (kvstrata.toml:2): must be a number from 1 to 268435456 blocks, such as 64K"
/// );
/// # Ok::<(), kvstrata_config::ConfigError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ManagerConfig {
    settings: Settings,
    group_settings: Vec<GroupSettings>,
    tenants: Vec<TenantSettings>,
    groups: Vec<Group>,
    model_name: Option<String>,
    origins: Origins,
}

impl ManagerConfig {
    /// Returns the name of the model: of the preset, or the `model_type` of the file in `geometry.config`.
    #[must_use]
    pub fn model_name(&self) -> Option<&str> {
        self.model.map(|model| model.name).or(self.model_name.as_deref())
    }

    /// Begins with the defaults. Files and variables are read only by calls of the builder.
    pub fn builder() -> ManagerConfigBuilder {
        ManagerConfigBuilder::default()
    }

    /// Reads the environment of the process, and the file that `KVSTRATA_CONFIG` names, if it names one.
    ///
    /// # Errors
    /// As [`ManagerConfigBuilder::build`].
    pub fn from_environment() -> Result<ManagerConfig, ConfigError> {
        ManagerConfig::builder().environment().build()
    }

    /// Returns the groups of layers, each with its own blocks; one group if all layers have one geometry.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the tenants with their own quotas.
    #[must_use]
    pub fn tenants(&self) -> &[TenantSettings] {
        &self.tenants
    }

    /// Returns the blocks of a tier as its setting counts them: the blocks of a group with share 1.
    #[must_use]
    pub fn blocks(&self, tier: Tier) -> u32 {
        match tier {
            Tier::Device => self.device.blocks,
            Tier::Host => self.host.blocks,
            Tier::DISK => self.disk.blocks,
            // Settings create one tier below host memory.
            Tier::Below(_) => 0,
        }
    }

    /// Returns the blocks of a group in a tier.
    #[must_use]
    pub fn blocks_of(&self, group: &Group, tier: Tier) -> u32 {
        Shape::of(tier, &self.settings).blocks(group, self.blocks(tier))
    }

    /// Returns the bytes of a group in a tier, including the padding of its blocks.
    #[must_use]
    pub fn bytes_of(&self, group: &Group, tier: Tier) -> u64 {
        u64::from(self.blocks_of(group, tier)).saturating_mul(group.stride_bytes(tier, self.device.kind))
    }

    /// Returns the tokens that the blocks of a group in a tier cover.
    #[must_use]
    pub fn tokens_of(&self, group: &Group, tier: Tier) -> u64 {
        u64::from(self.blocks_of(group, tier)) * u64::from(group.page_size)
    }

    /// Returns the bytes of a tier, all groups together, including the padding of their blocks.
    #[must_use]
    pub fn tier_bytes(&self, tier: Tier) -> u64 {
        self.groups.iter().map(|group| self.bytes_of(group, tier)).sum()
    }

    /// Returns the origin of a setting's value.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.of(key)
    }
}

/// Compares the settings, not their origins.
impl PartialEq for ManagerConfig {
    fn eq(&self, other: &ManagerConfig) -> bool {
        let lists = |config: &ManagerConfig| (config.group_settings.clone(), config.tenants.clone());
        self.settings == other.settings && lists(self) == lists(other)
    }
}

impl Deref for ManagerConfig {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

//! What a manager is to be: settings from files, variables and calls, one table of them, and errors that say
//! which, where and why.
//!
//! ```text
//!   table.rs ──► Settings, defaults ─┐
//!      │    ──► builder calls ───────┤  builder: default ◄ file ◄ variable ◄ call
//!      │    ──► keys of files ───────┤      │ ranges, then what must go together
//!      │    ──► KVSTRATA_… ──────────┘      ▼
//!      └──────► reference             ManagerConfig (checked; read-only)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `table.rs`, `lists.rs` | every setting: key, type, default, allowed values, words; those of `[[group]]` and `[[tenant]]` |
//! | `kind/`, `words.rs` | how values are read, bounded and written; those that are one word of several |
//! | `raw.rs` | a value before its setting has read it |
//! | `draft.rs` | settings in the making, and where each value came from |
//! | `builder.rs`, `file.rs`, `variables.rs` | where values come from, and which wins |
//! | `geometry.rs` | the model, the geometry and groups of layers: what a block is |
//! | `block.rs` | how a block lies in a tier; blocks, bytes and tokens of each group there |
//! | `model_file.rs` | the same from a model's `config.json` |
//! | `check.rs` | numbers that follow from others, and what does not go together |
//! | `error.rs`, `nearest.rs` | what is wrong, with key, value, place and what is allowed |
//! | `print.rs`, `reference.rs` | a configuration as a table and as TOML; the reference |
//!
//! Invariants
//! - I1: a [`ManagerConfig`] has passed every check: it is made by the builder only, and nothing of it can be
//!   changed.
//! - I2: a configuration written as TOML ([`ManagerConfig::to_toml`]) is read as the same.

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
    RuntimeSettings, Settings, TransferSettings, WatermarkSettings,
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

/// The settings of a manager, checked. Read them as fields of [`Settings`].
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
///     "device.blocks = 0 (kvstrata.toml:2): must be a number from 1 to 268435456 blocks, as 65536 or 64K"
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
    /// What the model is called: the preset's name, or the `model_type` of the file that `geometry.config` names.
    #[must_use]
    pub fn model_name(&self) -> Option<&str> {
        self.model.map(|model| model.name).or(self.model_name.as_deref())
    }

    /// Begins with the defaults, and looks at neither files nor variables before it is told to.
    pub fn builder() -> ManagerConfigBuilder {
        ManagerConfigBuilder::default()
    }

    /// What the process's variables say, and the file that `KVSTRATA_CONFIG` names, if it names one.
    ///
    /// # Errors
    /// As [`ManagerConfigBuilder::build`].
    pub fn from_environment() -> Result<ManagerConfig, ConfigError> {
        ManagerConfig::builder().environment().build()
    }

    /// Groups of layers, each with blocks of its own; one for a model whose layers have one geometry.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Tenants with quotas of their own.
    #[must_use]
    pub fn tenants(&self) -> &[TenantSettings] {
        &self.tenants
    }

    /// Blocks of a tier, as its setting counts them: those of a group whose share is 1.
    #[must_use]
    pub fn blocks(&self, tier: Tier) -> u32 {
        match tier {
            Tier::Device => self.device.blocks,
            Tier::Host => self.host.blocks,
            Tier::DISK => self.disk.blocks,
            // Settings make one tier below host memory.
            Tier::Below(_) => 0,
        }
    }

    /// Blocks of a group in a tier.
    #[must_use]
    pub fn blocks_of(&self, group: &Group, tier: Tier) -> u32 {
        Shape::of(tier, &self.settings).blocks(group, self.blocks(tier))
    }

    /// Bytes of a group in a tier, padding of its blocks included.
    #[must_use]
    pub fn bytes_of(&self, group: &Group, tier: Tier) -> u64 {
        u64::from(self.blocks_of(group, tier)).saturating_mul(group.stride_bytes(tier, self.device.kind))
    }

    /// Tokens that a group's blocks in a tier cover.
    #[must_use]
    pub fn tokens_of(&self, group: &Group, tier: Tier) -> u64 {
        u64::from(self.blocks_of(group, tier)) * u64::from(group.page_size)
    }

    /// Bytes of a tier, all groups together, padding of their blocks included.
    #[must_use]
    pub fn tier_bytes(&self, tier: Tier) -> u64 {
        self.groups.iter().map(|group| self.bytes_of(group, tier)).sum()
    }

    /// Where the value of a setting came from.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.of(key)
    }
}

/// The same settings; where they came from is not compared.
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

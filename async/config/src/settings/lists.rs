//! Settings that come in lists: `[[group]]` and `[[tenant]]`. Files and the builder give them; variables have
//! no lists.

use super::kind::{Fraction, Kind, LayerList, Maybe, Number, Text, Word};
use super::table::{Row, kind_of, row, unit_of};
use super::words::GroupKind;
use kvstrata_core::layout::DType;

macro_rules! list {
    ($(#[doc = $of:literal])+ $name:ident, $rows:ident, $list:literal {
        $($(#[doc = $words:literal])+ $field:ident: $type:ty = $default:expr, $kind:expr;)+
    }) => {
        $(#[doc = $of])+
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name { $($(#[doc = $words])+ pub $field: $type,)+ }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default),+ }
            }
        }

        /// The settings of an entry.
        pub(super) fn $rows() -> Vec<Row<$name>> {
            vec![$(row!($name, concat!($list, ".", stringify!($field)), [$($words)+], $type, $kind, $field)),+]
        }
    };
}

const fn number(most: u64, unit: &'static str) -> Number {
    Number { least: 1, most, unit }
}

list! {
    /// Layers with one geometry, in a model that has several: an entry of `[[group]]`. Each group has its own
    /// blocks.
    GroupSettings, group_rows, "group" {
        /// Name of the group in messages, metrics and file names. None: its kind and number.
        name: Option<String> = None, Maybe(Text);
        /// Kind of cache that the layers keep: full (keys and values of all tokens), window (of the last
        /// tokens), mla (one latent per token), or state (a state of fixed size).
        kind: GroupKind = GroupKind::Full, Word;
        /// Layers of the model that form the group; each layer is in exactly one group.
        layers: Vec<u32> = Vec::new(), LayerList;
        /// Tokens per block; for a state, tokens between two stored states. None: geometry.page_size.
        page_size: Option<u32> = None, Maybe(number(65_536, "tokens"));
        /// Number of KV heads of the whole model, all ranks together. None: geometry.kv_heads, or the
        /// model's.
        kv_heads: Option<u32> = None, Maybe(number(65_536, "heads"));
        /// Elements per head and token; for mla, the size of the latent. None: geometry.head_size, or the
        /// model's.
        head_size: Option<u32> = None, Maybe(number(1 << 24, "elements"));
        /// Element type. None: geometry.dtype, or the model's, or bfloat16.
        dtype: Option<DType> = None, Maybe(Word);
        /// Tokens that the window reaches back; for the kind window, which needs it.
        window: Option<u32> = None, Maybe(number(1 << 30, "tokens"));
        /// Bytes of the state of one layer on this rank; for the kind state, which needs it.
        state_bytes: Option<u32> = None, Maybe(number(1 << 30, "bytes"));
        /// Fraction of each tier's number of blocks that this group has; at least one block. None: as many
        /// blocks as cover the same tokens as the other groups' blocks; for a window, as many as keep it once
        /// per 4,096 tokens, but at least an eighth.
        share: Option<f64> = None, Maybe(Fraction);
    }
}

list! {
    /// Quotas of one tenant: an entry of `[[tenant]]`.
    TenantSettings, tenant_rows, "tenant" {
        /// Name of the tenant.
        name: String = String::new(), Text;
        /// Maximum fraction of device blocks. None: quota.device.
        device: Option<f64> = None, Maybe(Fraction);
        /// Maximum fraction of host blocks. None: quota.host.
        host: Option<f64> = None, Maybe(Fraction);
        /// Maximum fraction of disk blocks. None: quota.disk.
        disk: Option<f64> = None, Maybe(Fraction);
    }
}

//! Settings that come in lists: `[[group]]` and `[[tenant]]`. In files and by the builder only: variables
//! have no lists.

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

        /// Each of an entry's settings.
        pub(super) fn $rows() -> Vec<Row<$name>> {
            vec![$(row!($name, concat!($list, ".", stringify!($field)), [$($words)+], $type, $kind, $field)),+]
        }
    };
}

const fn number(most: u64, unit: &'static str) -> Number {
    Number { least: 1, most, unit }
}

list! {
    /// Layers with one geometry, of a model whose layers have several: an entry of `[[group]]`. Each group has blocks of its own.
    GroupSettings, group_rows, "group" {
        /// A name for messages; none: the kind and the group's number.
        name: Option<String> = None, Maybe(Text);
        /// What its layers keep: keys and values of all tokens, of the last ones, a latent, or a state of a fixed size.
        kind: GroupKind = GroupKind::Full, Word;
        /// Layers of the model; each is in exactly one group.
        layers: Vec<u32> = Vec::new(), LayerList;
        /// Tokens a block; of a state, tokens between two that are kept. None: as in geometry.
        page_size: Option<u32> = None, Maybe(number(65_536, "tokens"));
        /// KV heads of the whole model; none: as in geometry.
        kv_heads: Option<u32> = None, Maybe(number(65_536, "heads"));
        /// Elements a head and token, the latent's size for mla; none: as in geometry.
        head_size: Option<u32> = None, Maybe(number(1 << 24, "elements"));
        /// The elements' type; none: as in geometry.
        dtype: Option<DType> = None, Maybe(Word);
        /// Tokens that a window reaches back.
        window: Option<u32> = None, Maybe(number(1 << 30, "tokens"));
        /// Bytes of a state, a layer, on this rank.
        state_bytes: Option<u32> = None, Maybe(number(1 << 30, "bytes"));
        /// Blocks of this group in each tier, as a part of the tier's; at least one. None: as many as cover the same tokens as the other groups' blocks; of a window, as many as keep it once for each 4,096 tokens, and an eighth of that at least.
        share: Option<f64> = None, Maybe(Fraction);
    }
}

list! {
    /// What one tenant may have: an entry of `[[tenant]]`.
    TenantSettings, tenant_rows, "tenant" {
        /// Its name.
        name: String = String::new(), Text;
        /// The part of the device's blocks; none: as in quota.
        device: Option<f64> = None, Maybe(Fraction);
        /// The part of the host's; none: as in quota.
        host: Option<f64> = None, Maybe(Fraction);
        /// The part of the disk's; none: as in quota.
        disk: Option<f64> = None, Maybe(Fraction);
    }
}

//! Namespaces: the same key of an engine names different entries for different models, layouts, ranks,
//! adapters and tenants.
//!
//! ```text
//!   model, revision, dtype, layout, span, ranks, LoRA, salt ──► H ──► prefix
//!   prefix ‖ the engine's key ────────────────────────────────► H ──► key
//! ```
//!
//! Invariants
//! - I1: each part is encoded behind its length, so that different parts never make the same bytes.
//! - I2: H is keyed with the deployment's secret (`hash.*`) unless the settings say otherwise. Without the
//!   secret, a client cannot choose a key or a salt that gets the name of another's entry.

use crate::config::StoreSettings;
use kvstrata_core::SequenceHash;
use kvstrata_core::hash::{BlockHasher, Hasher};
use std::fmt;

/// Distinguishes the inputs of a store from other inputs of the same hash function.
const DOMAIN: &[u8] = b"kvstrata store 1";

/// The names of the parts in the settings.
const PARTS: [&str; 8] = [
    "store.model",
    "store.revision",
    "store.dtype",
    "store.layout",
    "store.span",
    "store.ranks",
    "store.lora",
    "store.salt",
];
/// The parts that may be missing.
const OPTIONAL: [&str; 2] = ["store.lora", "store.salt"];

/// Makes keys. A clone makes the same keys.
#[derive(Clone)]
pub struct Namespace {
    hasher: Hasher,
    parts: [Option<String>; PARTS.len()],
    prefix: u128,
}

impl Namespace {
    /// Returns the namespace of settings, or the names of the missing parts.
    pub(super) fn of(settings: &StoreSettings, hasher: Hasher) -> Result<Namespace, Vec<&'static str>> {
        let span = settings.span.map(|span| span.to_string());
        let StoreSettings { model, revision, dtype, layout, ranks, lora, salt, .. } = settings.clone();
        let parts = [model, revision, dtype, layout, span, ranks, lora, salt];
        let is_missing = |(name, part): &(&&str, &Option<String>)| part.is_none() && !OPTIONAL.contains(name);
        let missing: Vec<_> = PARTS.iter().zip(&parts).filter(is_missing).map(|(name, _)| *name).collect();
        if missing.is_empty() { Ok(Namespace::made(hasher, parts)) } else { Err(missing) }
    }

    fn made(hasher: Hasher, parts: [Option<String>; PARTS.len()]) -> Namespace {
        let mut bytes = DOMAIN.to_vec();
        for part in &parts {
            // A missing part differs from an empty one.
            let length = part.as_ref().map_or(u64::MAX, |part| part.len() as u64);
            bytes.extend(length.to_le_bytes());
            bytes.extend(part.iter().flat_map(|part| part.as_bytes()));
        }
        let prefix = hasher.bytes(&bytes);
        Namespace { hasher, parts, prefix }
    }

    /// Returns the key of an entry, from the engine's key: any bytes.
    #[must_use]
    pub fn key(&self, key: &[u8]) -> SequenceHash {
        const SHORT: usize = 128;
        let prefix = self.prefix.to_le_bytes();
        let end = prefix.len() + key.len();
        let hash = if end <= SHORT {
            let mut bytes = [0; SHORT];
            bytes[..prefix.len()].copy_from_slice(&prefix);
            bytes[prefix.len()..end].copy_from_slice(key);
            self.hasher.bytes(&bytes[..end])
        } else {
            self.hasher.bytes(&[&prefix[..], key].concat())
        };
        SequenceHash::from_u128(hash)
    }

    /// Returns the same namespace with another LoRA adapter.
    #[must_use]
    pub fn with_lora(&self, lora: &str) -> Namespace {
        self.with(6, lora)
    }

    /// Returns the same namespace with another salt.
    #[must_use]
    pub fn with_salt(&self, salt: &str) -> Namespace {
        self.with(7, salt)
    }

    fn with(&self, part: usize, text: &str) -> Namespace {
        let mut parts = self.parts.clone();
        parts[part] = Some(text.to_owned());
        Namespace::made(self.hasher.clone(), parts)
    }
}

impl fmt::Debug for Namespace {
    /// Without the salt, which may be a tenant's secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = PARTS.iter().zip(&self.parts).filter(|(name, _)| **name != "store.salt");
        f.debug_map().entries(shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvstrata_core::hash::Keyed;
    use std::collections::BTreeSet;

    fn settings() -> StoreSettings {
        let text = |text: &str| Some(text.to_owned());
        StoreSettings {
            model: text("m"),
            revision: text("r"),
            dtype: text("d"),
            layout: text("l"),
            span: Some(16),
            ranks: text("0of1"),
            ..StoreSettings::default()
        }
    }

    fn namespace(settings: &StoreSettings) -> Namespace {
        Namespace::of(settings, Keyed::new(&[1; 32]).into()).expect("all parts")
    }

    #[test]
    fn each_part_changes_every_key() {
        let text = || Some("other".to_owned());
        let changes: [fn(&mut StoreSettings, Option<String>); 8] = [
            |of, text| of.model = text,
            |of, text| of.revision = text,
            |of, text| of.dtype = text,
            |of, text| of.layout = text,
            |of, _| of.span = Some(17),
            |of, text| of.ranks = text,
            |of, text| of.lora = text,
            |of, text| of.salt = text,
        ];
        let mut keys = BTreeSet::from([namespace(&settings()).key(b"key").to_u128()]);
        for change in changes {
            let mut other = settings();
            change(&mut other, text());
            assert!(keys.insert(namespace(&other).key(b"key").to_u128()));
        }
        // Bytes that move from one part to the next are another fingerprint.
        let moved = StoreSettings { model: Some("mr".into()), revision: Some(String::new()), ..settings() };
        assert!(keys.insert(namespace(&moved).key(b"key").to_u128()));
        let other = Namespace::of(&settings(), Keyed::new(&[2; 32]).into()).expect("all parts");
        assert!(keys.insert(other.key(b"key").to_u128()), "another secret");
        let base = namespace(&settings());
        assert!(keys.insert(base.with_lora("a").key(b"key").to_u128()));
        assert!(keys.insert(base.with_salt("a").key(b"key").to_u128()));
        assert_eq!(base.key(&[7; 500]), namespace(&settings()).key(&[7; 500]));
        assert_ne!(base.key(&[7; 112]), base.key(&[7; 113]));
    }

    #[test]
    fn missing_parts_are_named() {
        let none = Namespace::of(&StoreSettings::default(), Hasher::Xxh3).expect_err("nothing is given");
        assert_eq!(none, PARTS[..6]);
    }

    #[test]
    fn debug_text_hides_the_salt() {
        let text = format!("{:?}", namespace(&settings()).with_salt("secret"));
        assert!(!text.contains("secret") && text.contains("0of1"), "{text}");
    }
}

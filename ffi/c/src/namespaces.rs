//! The namespaces of a store, by LoRA adapter and salt. To make one takes longer than to find it.

use kvstrata::store::Namespace;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Salts may be as many as tenants. Past this number the namespaces are made anew.
const MOST: usize = 4096;

#[derive(Debug)]
pub(crate) struct Namespaces {
    base: Arc<Namespace>,
    made: Mutex<HashMap<Box<[u8]>, Arc<Namespace>>>,
}

impl Namespaces {
    pub(crate) fn new(base: &Namespace) -> Namespaces {
        Namespaces { base: Arc::new(base.clone()), made: Mutex::default() }
    }

    /// Returns the namespace of an adapter and a salt; `None`: as the settings say.
    pub(crate) fn of(&self, lora: Option<&str>, salt: Option<&str>) -> Arc<Namespace> {
        if lora.is_none() && salt.is_none() {
            return Arc::clone(&self.base);
        }
        // The adapter behind its length, so that different pairs never make the same name.
        let mut name = lora.map_or(u64::MAX, |lora| lora.len() as u64).to_le_bytes().to_vec();
        name.extend(lora.unwrap_or_default().as_bytes());
        name.push(u8::from(salt.is_some()));
        name.extend(salt.unwrap_or_default().as_bytes());
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = made.get(name.as_slice()) {
            return Arc::clone(found);
        }
        let mut namespace = (*self.base).clone();
        if let Some(lora) = lora {
            namespace = namespace.with_lora(lora);
        }
        if let Some(salt) = salt {
            namespace = namespace.with_salt(salt);
        }
        let namespace = Arc::new(namespace);
        if made.len() >= MOST {
            made.clear();
        }
        made.insert(name.into(), Arc::clone(&namespace));
        namespace
    }
}

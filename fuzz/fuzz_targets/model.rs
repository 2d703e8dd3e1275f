//! A `config.json` of any bytes is a geometry with each layer in one group, or is refused with a
//! message of one line; never a panic.
#![no_main]

use kvstrata::model::{Keeps, ModelGeometry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let model = match ModelGeometry::from_json(bytes) {
        Ok(model) => model,
        Err(error) => {
            let message = error.to_string();
            return assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
        }
    };
    let mut seen = vec![false; 2 * model.layers as usize];
    for group in &model.groups {
        assert!(!group.layers.is_empty() && group.layers.is_sorted());
        for layer in &group.layers {
            assert!(!std::mem::replace(&mut seen[*layer as usize], true), "layer {layer} is in two groups");
        }
        if let Keeps::State(state) = group.keeps {
            assert!(state.bytes(1).is_ok(), "a state that a layout takes");
        }
    }
    assert!(seen[..model.layers as usize].iter().all(|seen| *seen), "each layer is in a group");
});

//! A JSON object's fields: their types, their bounds, and messages that name them.
//!
//! `null` is as if the field were not there, as `transformers` has it. Nothing from the file is printed raw:
//! values are shown as JSON, which escapes control characters, and cut.

use super::ModelError;
use kvstrata_core::layout::DType;
use serde_json::{Map, Value};

/// Bounds of what a layout takes, and of what a person could mean.
pub(super) const MOST_LAYERS: u32 = 65_536;
pub(super) const MOST_HEADS: u32 = 65_536;
pub(super) const MOST_ELEMENTS: u32 = 1 << 24;
pub(super) const MOST_WINDOW: u32 = 1 << 30;
pub(super) const MOST_BYTES: u32 = 1 << 30;

/// An object, and where in the file it is.
pub(super) struct Object<'j> {
    fields: &'j Map<String, Value>,
    prefix: &'static str,
}

impl<'j> Object<'j> {
    pub(super) fn new(value: &'j Value) -> Result<Object<'j>, ModelError> {
        match value {
            Value::Object(fields) => Ok(Object { fields, prefix: "" }),
            other => Err(ModelError::NotJson { why: format!("it is {}", kind(other)) }),
        }
    }

    /// A field's path within the file.
    pub(super) fn path(&self, field: &str) -> String {
        format!("{}{field}", self.prefix)
    }

    pub(super) fn get(&self, field: &str) -> Option<&'j Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// Whether the field is there, be it `null`.
    pub(super) fn names(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    fn wrong(&self, field: &str, value: &Value, wanted: &str) -> ModelError {
        ModelError::new(self.path(field), short(value), format!("must be {wanted}"))
    }

    /// A whole number from `least` to `most`.
    fn between(&self, field: &str, least: u32, most: u32) -> Result<Option<u32>, ModelError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(field, value, &format!("a whole number from {least} to {most}"))),
        }
    }

    /// A whole number from 1 on.
    pub(super) fn number(&self, field: &str, most: u32) -> Result<Option<u32>, ModelError> {
        self.between(field, 1, most)
    }

    /// A number that must be there.
    pub(super) fn needed(&self, field: &str, most: u32, why: &str) -> Result<u32, ModelError> {
        self.number(field, most)?.ok_or_else(|| ModelError::missing(self.path(field), why))
    }

    /// A number from 0 on.
    pub(super) fn count(&self, field: &str, most: u32) -> Result<Option<u32>, ModelError> {
        self.between(field, 0, most)
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&'j str>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(field, other, "a text")),
        }
    }

    pub(super) fn flag(&self, field: &str) -> Result<Option<bool>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(field, other, "true or false")),
        }
    }

    pub(super) fn list(&self, field: &str) -> Result<Option<&'j [Value]>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(other) => Err(self.wrong(field, other, "a list")),
        }
    }

    /// An object within this one, which is the file.
    pub(super) fn object(&self, field: &'static str) -> Result<Option<Object<'j>>, ModelError> {
        let prefix = match field {
            "text_config" => "text_config.",
            "quantization_config" => "quantization_config.",
            _ => "",
        };
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Object { fields, prefix })),
            Some(other) => Err(self.wrong(field, other, "an object")),
        }
    }

    /// Fields that make a cache other than their family's; such a file is refused, whatever the family.
    pub(super) fn refuse_what_changes_the_cache(&self) -> Result<(), ModelError> {
        for field in
            ["num_kv_shared_layers", "attention_k_eq_v", "is_encoder_decoder", "cross_attention_layers"]
        {
            let value = self.get(field);
            let nothing = |value: &Value| match value {
                Value::Bool(flag) => !flag,
                Value::Number(number) => number.as_u64() == Some(0),
                Value::Array(values) => values.is_empty(),
                _ => false,
            };
            if let Some(value) = value.filter(|value| !nothing(value)) {
                return Err(ModelError::new(self.path(field), short(value), "this field is not supported"));
            }
        }
        Ok(())
    }
}

/// The type that a quantization has for the cache, if it has one.
pub(super) fn cache_dtype(of_text: &Object<'_>, file: &Object<'_>) -> Result<Option<DType>, ModelError> {
    for object in [of_text, file] {
        let Some(quantization) = object.object("quantization_config")? else { continue };
        if let Some(scheme) = quantization.get("kv_cache_scheme") {
            let field = |name: &str| scheme.get(name);
            let dtype =
                match (field("num_bits").and_then(Value::as_u64), field("type").and_then(Value::as_str)) {
                    (Some(8), Some("float")) => DType::F8E4M3,
                    (Some(8), Some("int")) => DType::I8,
                    _ => {
                        let why = "not supported; a cache of 8 bits, float or int, is";
                        return Err(ModelError::new(
                            quantization.path("kv_cache_scheme"),
                            short(scheme),
                            why,
                        ));
                    }
                };
            return Ok(Some(dtype));
        }
        if let Some(name) = quantization.text("kv_cache_quant_algo")? {
            return match name.to_ascii_uppercase().as_str() {
                "FP8" => Ok(Some(DType::F8E4M3)),
                "INT8" => Ok(Some(DType::I8)),
                "NVFP4" => Ok(Some(DType::NvFp4)),
                _ => {
                    let field = quantization.path("kv_cache_quant_algo");
                    Err(ModelError::new(field, shown(name), "not supported; FP8, INT8 and NVFP4 are"))
                }
            };
        }
    }
    Ok(None)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A text from the file, as JSON and cut.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 48;
    let cut: String = text.chars().take(MOST).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{dots}")
}

/// A value, as JSON and cut; of lists and objects what they are.
pub(super) fn short(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text),
        Value::Array(_) | Value::Object(_) => kind(value).to_owned(),
        other => {
            let text = other.to_string();
            text.chars().take(48).collect()
        }
    }
}

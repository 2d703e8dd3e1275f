//! Fields of a JSON object: their types, their bounds, and errors that name them.
//!
//! As in `transformers`, `null` counts as a missing field. No text from the file is printed raw: values are
//! shown as JSON, which escapes control characters, and are shortened.

use super::ModelError;
use kvstrata_core::layout::DType;
use serde_json::{Map, Value};

/// Bounds: the limits of a layout, and of plausible values.
pub(super) const MOST_LAYERS: u32 = 65_536;
pub(super) const MOST_HEADS: u32 = 65_536;
pub(super) const MOST_ELEMENTS: u32 = 1 << 24;
pub(super) const MOST_WINDOW: u32 = 1 << 30;
pub(super) const MOST_BYTES: u32 = 1 << 30;

/// An object and its place in the file.
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

    /// The path of a field within the file.
    pub(super) fn path(&self, field: &str) -> String {
        format!("{}{field}", self.prefix)
    }

    pub(super) fn get(&self, field: &str) -> Option<&'j Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// Whether the field exists; it may be `null`.
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

    /// A whole number, at least 1.
    pub(super) fn number(&self, field: &str, most: u32) -> Result<Option<u32>, ModelError> {
        self.between(field, 1, most)
    }

    /// A required whole number, at least 1.
    pub(super) fn needed(&self, field: &str, most: u32, why: &str) -> Result<u32, ModelError> {
        self.number(field, most)?.ok_or_else(|| ModelError::missing(self.path(field), why))
    }

    /// A whole number, at least 0.
    pub(super) fn count(&self, field: &str, most: u32) -> Result<Option<u32>, ModelError> {
        self.between(field, 0, most)
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&'j str>, ModelError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(field, other, "a string")),
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

    /// An object within this one, which is the top level of the file.
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

    /// Refuses fields that change the cache in a way that no family supports.
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

/// The element type that the quantization gives the cache, if it gives one.
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
                        let why = "not supported; supported are 8 bits, float or int";
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
                    Err(ModelError::new(
                        field,
                        shown(name),
                        "not supported; supported are FP8, INT8 and NVFP4",
                    ))
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
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A string from the file, as JSON, shortened.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 48;
    let cut: String = text.chars().take(MOST).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{dots}")
}

/// A value as JSON, shortened; for lists and objects, their type.
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

//! Settings of Python as the settings' own text: `{"store": {"model": "m"}}` and `store_model="m"` become
//! `store.model = "m"`.

use super::errors::{OpenError, type_name};
use kvstrata::ManagerConfig;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::fmt::Write;

/// Reads settings: an argument that is a dict or TOML text, then keyword arguments, which are stronger.
pub(crate) fn read(
    settings: Option<&Bound<'_, PyAny>>,
    arguments: Option<&Bound<'_, PyDict>>,
    environment: bool,
) -> PyResult<ManagerConfig> {
    let mut builder = ManagerConfig::builder();
    if environment {
        builder = builder.environment();
    }
    if let Some(settings) = settings {
        let text = if let Ok(text) = settings.cast::<PyString>() {
            text.to_str()?.to_owned()
        } else if let Ok(sections) = settings.cast::<PyDict>() {
            lines(sections, false)?
        } else {
            let kind = type_name(settings);
            return Err(PyTypeError::new_err(format!(
                "settings: {kind}; pass a dict, or the text of a TOML file"
            )));
        };
        builder = builder.toml("settings", text);
    }
    if let Some(arguments) = arguments {
        builder = builder.toml("arguments", lines(arguments, true)?);
    }
    builder.build().map_err(|error| OpenError::new_err(error.to_string()))
}

/// Returns one line for each setting. As arguments, the section stands before the first underscore.
fn lines(sections: &Bound<'_, PyDict>, are_arguments: bool) -> PyResult<String> {
    let mut text = String::new();
    for (name, value) in sections {
        let name = name_of(&name)?;
        let path = match name.split_once('_') {
            Some((section, key)) if are_arguments && !section.is_empty() => {
                format!("{}.{}", quoted(section), quoted(key))
            }
            _ => quoted(&name),
        };
        line(&mut text, &path, &value)?;
    }
    Ok(text)
}

fn line(text: &mut String, path: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if value.is_none() {
        return Ok(());
    }
    if let Ok(section) = value.cast::<PyDict>() {
        for (name, value) in section {
            line(text, &format!("{path}.{}", quoted(&name_of(&name)?)), &value)?;
        }
        return Ok(());
    }
    // Writing to a string does not fail.
    let _ = writeln!(text, "{path} = {}", inline(path, value)?);
    Ok(())
}

fn inline(path: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_instance_of::<PyBool>() {
        return Ok(value.is_truthy()?.to_string());
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(value.str()?.to_string());
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Ok(format!("{:?}", number.value()).to_lowercase());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(string(text.to_str()?));
    }
    if let Ok(table) = value.cast::<PyDict>() {
        let mut parts = Vec::new();
        for (name, value) in table.iter().filter(|(_, value)| !value.is_none()) {
            parts.push(format!("{} = {}", quoted(&name_of(&name)?), inline(path, &value)?));
        }
        return Ok(format!("{{ {} }}", parts.join(", ")));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let parts = value.try_iter()?.map(|value| inline(path, &value?)).collect::<PyResult<Vec<_>>>()?;
        return Ok(format!("[{}]", parts.join(", ")));
    }
    if let Some(path) = value.getattr_opt("__fspath__")? {
        return Ok(string(path.call0()?.extract::<String>()?.as_str()));
    }
    let kind = type_name(value);
    Err(PyTypeError::new_err(format!("{path}: {kind}; pass a str, int, float, bool, path, list or dict")))
}

fn name_of(name: &Bound<'_, PyAny>) -> PyResult<String> {
    name.extract()
        .map_err(|_| PyTypeError::new_err(format!("settings: a key of type {}; pass str", type_name(name))))
}

fn quoted(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !key.is_empty() && key.bytes().all(is_bare) { key.to_owned() } else { string(key) }
}

/// Returns a TOML string.
fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control.is_control() => _ = write!(out, "\\u{:04X}", control as u32),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

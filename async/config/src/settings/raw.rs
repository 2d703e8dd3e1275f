//! Values as written: in a file, with a type; in a variable, as text.

use std::borrow::Cow;
use std::fmt;
use toml::de::DeValue;

/// A value before its setting reads it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Raw<'a> {
    Text(Cow<'a, str>),
    Integer(i128),
    Float(f64),
    Flag(bool),
    List(Vec<Raw<'a>>),
    /// A date or a table, which no setting takes, by its name in TOML.
    Other(&'static str),
}

impl<'a> Raw<'a> {
    pub(super) fn text(text: &'a str) -> Raw<'a> {
        Raw::Text(Cow::Borrowed(text))
    }

    pub(super) fn of(value: &'a DeValue<'_>) -> Raw<'a> {
        match value {
            DeValue::String(text) => Raw::text(text),
            DeValue::Integer(number) => {
                match i128::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Raw::Integer(number),
                    // More digits than any setting takes: shown as written.
                    Err(_) => Raw::Text(number.to_string().into()),
                }
            }
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => Raw::Float(number),
                Err(_) => Raw::text(number.as_str()),
            },
            DeValue::Boolean(flag) => Raw::Flag(*flag),
            DeValue::Array(values) => {
                Raw::List(values.iter().map(|value| Raw::of(value.get_ref())).collect())
            }
            DeValue::Datetime(_) => Raw::Other("a date"),
            DeValue::Table(_) => Raw::Other("a table"),
        }
    }
}

impl fmt::Display for Raw<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raw::Text(text) if text.is_empty() || text.contains(char::is_whitespace) => write!(f, "{text:?}"),
            Raw::Text(text) => f.write_str(text),
            Raw::Integer(number) => write!(f, "{number}"),
            Raw::Float(number) => write!(f, "{number:?}"),
            Raw::Flag(flag) => write!(f, "{flag}"),
            Raw::List(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Raw::Other(what) => f.write_str(what),
        }
    }
}

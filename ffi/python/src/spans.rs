//! Stretches of memory that Python objects name.

use super::errors::refused;
use kvstrata_ffi::arena::Span;
use pyo3::PyResult;
use std::fmt;

/// Contiguous bytes of an object.
pub(crate) struct Region {
    pub(crate) address: *mut u8,
    pub(crate) bytes: usize,
    /// The length of the first dimension, of several.
    pub(crate) rows: Option<usize>,
}

/// The argument that names an object, for messages.
#[derive(Clone, Copy)]
pub(crate) enum Where {
    Buffers,
    Buffer(usize),
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Where::Buffers => f.write_str("buffers"),
            Where::Buffer(number) => write!(f, "buffers[{number}]"),
        }
    }
}

impl Region {
    /// Returns all of it as a span.
    pub(crate) fn span(&self, at: Where) -> PyResult<Span> {
        Span::new(self.address, self.bytes)
            .ok_or_else(|| refused(format!("{at}: 0 bytes; each key has at least 1 byte")))
    }

    /// Returns the row of this number as a span. `of` is the number's place among the rows.
    pub(crate) fn row(&self, row: i64, of: usize) -> PyResult<Span> {
        let rows = self.rows.unwrap_or(0);
        let number = usize::try_from(row).ok().filter(|row| *row < rows);
        let number = number.ok_or_else(|| {
            refused(format!(
                "rows[{of}] = {row}: the view has {rows} rows; give a number from 0 to {}",
                rows.max(1) - 1
            ))
        })?;
        let bytes = self.bytes / rows;
        let span = Span::new(self.address.wrapping_add(number * bytes), bytes);
        span.ok_or_else(|| refused("buffers: rows of 0 bytes; each key has at least 1 byte"))
    }
}

/// Refuses targets of a load that overlap: two transfers would write the same bytes.
pub(crate) fn check_apart(spans: &[Span]) -> PyResult<()> {
    let start = |number: u32| spans[number as usize].address.as_ptr().addr();
    if spans
        .windows(2)
        .all(|two| two[0].address.as_ptr().addr() + two[0].bytes <= two[1].address.as_ptr().addr())
    {
        return Ok(());
    }
    let mut order: Vec<u32> = (0..spans.len() as u32).collect();
    order.sort_unstable_by_key(|number| start(*number));
    match order.windows(2).find(|two| start(two[0]) + spans[two[0] as usize].bytes > start(two[1])) {
        None => Ok(()),
        Some(two) => {
            let (first, second) = (two[0].min(two[1]), two[0].max(two[1]));
            Err(refused(format!(
                "buffers of keys {first} and {second} overlap; a load needs separate memory for each key"
            )))
        }
    }
}

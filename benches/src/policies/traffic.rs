//! Requests in the laboratory's form: blocks renumbered from 0 on, so that data about them lies in arrays.
//!
//! I1. Ids are `0 .. distinct`, in order of their first occurrence; no request names one twice.

use kvstrata_cli::trace::{TraceReader, TraceSource};
use std::collections::HashMap;
use std::error::Error;

/// Requests in order: time, and the names of the prompt's blocks.
pub type Raw = Vec<(u64, Vec<u64>)>;

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Arrival, in milliseconds.
    pub time: u64,
    /// The prompt's blocks.
    pub ids: Vec<u32>,
}

/// A trace.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Its name in tables.
    pub name: String,
    /// The requests in order of arrival.
    pub requests: Vec<Request>,
    /// The number of different blocks.
    pub distinct: usize,
    /// Blocks of all requests.
    pub blocks: u64,
}

impl Trace {
    /// Renumbers the blocks.
    #[must_use]
    pub fn new(name: &str, raw: Raw) -> Trace {
        let mut numbers: HashMap<u64, u32> = HashMap::new();
        let mut blocks = 0;
        let requests = raw
            .into_iter()
            .map(|(time, names)| {
                blocks += names.len() as u64;
                let mut number = |name| {
                    let next = numbers.len() as u32;
                    *numbers.entry(name).or_insert(next)
                };
                Request { time, ids: names.into_iter().map(&mut number).collect() }
            })
            .collect();
        Trace { name: name.to_owned(), requests, distinct: numbers.len(), blocks }
    }

    /// Reads a trace.
    ///
    /// # Errors
    /// It cannot be read, names a block twice in one request, or has no blocks.
    pub fn read(source: TraceSource) -> Result<Trace, Box<dyn Error>> {
        let origin = source.to_string();
        let mut reader = TraceReader::open(source)?;
        let (mut raw, mut last) = (Raw::new(), HashMap::new());
        while let Some(request) = reader.next_request()? {
            let line = reader.line();
            for id in &request.hash_ids {
                if last.insert(*id, line) == Some(line) {
                    let why = "a request has a block once; remove the second";
                    return Err(
                        format!("--trace {origin}: line {line}: hash_ids has {id} twice: {why}").into()
                    );
                }
            }
            raw.push((request.timestamp as u64, request.hash_ids));
        }
        let trace = Trace::new("conversation", raw);
        if trace.blocks == 0 {
            return Err(
                format!("--trace {origin}: no blocks; is this a trace of requests with hash_ids?").into()
            );
        }
        Ok(trace)
    }

    /// Returns the trace before blocks were renumbered, except for their names.
    #[must_use]
    pub fn raw(&self) -> Raw {
        let names = |request: &Request| request.ids.iter().map(|id| u64::from(*id)).collect();
        self.requests.iter().map(|request| (request.time, names(request))).collect()
    }

    /// Returns hits in per cent of its blocks.
    #[must_use]
    pub fn percent(&self, hits: u64) -> f64 {
        100.0 * hits as f64 / self.blocks as f64
    }

    /// Returns the blocks of the longest request.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.requests.iter().map(|request| request.ids.len()).max().unwrap_or(0)
    }
}

/// Returns a block's key, as the core derives it from its sequence hash.
#[must_use]
pub fn key_of(id: u32) -> u64 {
    crate::inputs::mix(u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<Trace, String> {
        let path = std::env::temp_dir().join(format!("kvstrata-policies-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("the folder for temporary files");
        let trace = Trace::read(TraceSource::File(path.clone())).map_err(|error| error.to_string());
        std::fs::remove_file(path).expect("it was written");
        trace
    }

    #[test]
    fn impossible_request_is_refused_by_line() {
        let line = |ids| {
            format!(
                "{{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [{ids}]}}\n"
            )
        };
        let good = read("good", &(line("7, 9") + &line("9"))).expect("a trace");
        assert_eq!((good.distinct, good.blocks), (2, 3));
        let twice = read("twice", &(line("7, 9") + &line("8, 9, 8"))).expect_err("a block twice");
        assert!(twice.contains("line 2: hash_ids has 8 twice"), "{twice}");
        let none = read("none", &line("")).expect_err("no blocks");
        assert!(none.contains("no blocks"), "{none}");
    }
}

//! Peers: a process each that answers a line with a line.
//!
//! ```text
//!   ◄ {"ready": "name and version"}                      or {"skip": "why"}
//!   ► read 1048576 32 500                                way, bytes a block, blocks in flight, milliseconds
//!   ◄ {"bytes": 1073741824, "seconds": 0.5, "cpu_seconds": 0.1}        or {"error": "message"}
//! ```
//!
//! It gets malloc's huge pages, as fio does. It is stopped (SIGSTOP) outside its turns, because some
//! peers spin when they are idle.

use super::{Cell, Contender, Failure, Turn};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A peer that is ready.
#[derive(Debug)]
pub struct Worker {
    name: String,
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// Its only block size, if it has one.
    block_bytes: Option<usize>,
}

impl Worker {
    /// Starts the worker and waits until it is ready.
    ///
    /// # Errors
    /// The reason why it is not ready, or why it skips.
    pub fn start(mut command: Command, block_bytes: Option<usize>) -> Result<Worker, Failure> {
        let mut child = command
            .env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker without pipes".into());
        };
        let name = command.get_program().display().to_string();
        let mut worker = Worker { name, child, to, from: BufReader::new(from), block_bytes };
        let ready = worker.line()?;
        if let Some(why) = ready["skip"].as_str() {
            return Err(why.into());
        }
        worker.name = ready["ready"].as_str().ok_or("a worker that is not ready")?.to_owned();
        worker.signal(libc::SIGSTOP);
        Ok(worker)
    }

    /// Returns whether it supports blocks of this size.
    #[must_use]
    pub fn serves(&self, block_bytes: usize) -> bool {
        self.block_bytes.is_none_or(|only| only == block_bytes)
    }

    fn line(&mut self) -> Result<Value, Failure> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err(format!("{}: it ended", self.name).into());
        }
        Ok(serde_json::from_str(&line).map_err(|error| format!("{}: {error}: {line}", self.name))?)
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a signal to a child of ours that has not been waited for, so that its number is still
        // its own.
        let _ = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }
}

impl Contender for Worker {
    fn name(&self) -> &str {
        &self.name
    }

    fn turn(&mut self, cell: Cell, length: Duration) -> Result<Turn, Failure> {
        self.signal(libc::SIGCONT);
        let Cell { block_bytes, depth, way } = cell;
        writeln!(self.to, "{} {block_bytes} {depth} {}", way.word(), length.as_millis())?;
        self.to.flush()?;
        let answer = self.line();
        self.signal(libc::SIGSTOP);
        let answer = answer?;
        if let Some(error) = answer["error"].as_str() {
            return Err(format!("{}: {error}", self.name).into());
        }
        let number = |key: &str| answer[key].as_f64().ok_or_else(|| format!("{}: no {key}", self.name));
        Ok(Turn {
            bytes: number("bytes")? as u64,
            seconds: number("seconds")?,
            cpu_seconds: number("cpu_seconds")?,
            calls: None,
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! The limit: fio at its best. io_uring, O_DIRECT, registered file and buffers, huge pages, a file that
//! was written before.
//!
//! Without `--iomem_align=2m` and malloc's huge pages fio reads large blocks at about half the
//! rate, and any comparison flatters.

use super::{Cell, Contender, Failure, Turn, Way};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// fio over one file.
#[derive(Debug)]
pub struct Fio {
    file: PathBuf,
    bytes: u64,
    name: String,
}

/// fio's urgent reads beside writes.
#[derive(Clone, Copy, Debug)]
pub struct FioBeside {
    /// Median of a read, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of a read, in milliseconds.
    pub p99_ms: f64,
    /// The writes meanwhile.
    pub written: Turn,
}

impl Fio {
    /// Prepares fio over a file of so many bytes, which exists.
    ///
    /// # Errors
    /// There is no fio; the message has the remedy.
    pub fn new(file: PathBuf, bytes: u64) -> Result<Fio, Failure> {
        let version = Command::new("fio").arg("--version").output();
        let version = version.map_err(|error| format!("no fio ({error}): `apt install fio`"))?;
        let name = String::from_utf8_lossy(&version.stdout).trim().to_owned();
        Ok(Fio { file, bytes, name })
    }

    /// Returns fio's version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.name
    }

    fn command(&self, length: Duration) -> Command {
        let mut command = Command::new("fio");
        command
            .env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
            .args(["--ioengine=io_uring", "--direct=1", "--fixedbufs=1", "--registerfiles=1"])
            .args(["--iomem_align=2m", "--scramble_buffers=0", "--norandommap", "--randrepeat=0"])
            .args(["--allow_file_create=0", "--output-format=json", "--time_based"])
            .arg(format!("--filename={}", self.file.display()))
            .arg(format!("--filesize={}", self.bytes))
            .arg(format!("--runtime={}ms", length.as_millis()));
        command
    }

    /// Reads single blocks, `between` apart, beside writes at a depth.
    ///
    /// # Errors
    /// An error of fio.
    pub fn beside_writes(
        &self,
        block_bytes: usize,
        depth: usize,
        between: Duration,
        length: Duration,
    ) -> Result<FioBeside, Failure> {
        let mut command = self.command(length);
        command
            .arg(format!("--bs={block_bytes}"))
            .args(["--lat_percentiles=1", "--clat_percentiles=0", "--percentile_list=50:99"])
            .args(["--name=write", "--rw=randwrite", &format!("--iodepth={depth}")])
            .args(["--name=read", "--rw=randread", "--iodepth=1"])
            .arg(format!("--rate_iops={}", (1.0 / between.as_secs_f64()).round()));
        let report = run(&mut command)?;
        let read = &report["jobs"][1]["read"]["lat_ns"]["percentile"];
        Ok(FioBeside {
            p50_ms: number(&read["50.000000"])? / 1e6,
            p99_ms: number(&read["99.000000"])? / 1e6,
            written: turn(&report["jobs"][0])?,
        })
    }
}

impl Contender for Fio {
    fn name(&self) -> &str {
        "fio"
    }

    fn turn(&mut self, cell: Cell, length: Duration) -> Result<Turn, Failure> {
        let way = match cell.way {
            Way::Read => "--rw=randread",
            Way::Write => "--rw=randwrite",
            Way::Mix => "--rw=randrw",
        };
        let mut command = self.command(length);
        command.args(["--name=turn", way, "--rwmixread=70", "--gtod_reduce=1"]);
        command.arg(format!("--bs={}", cell.block_bytes)).arg(format!("--iodepth={}", cell.depth));
        turn(&run(&mut command)?["jobs"][0])
    }
}

fn run(command: &mut Command) -> Result<Value, Failure> {
    let output = command.output().map_err(|error| format!("fio: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("fio: {}: {}", output.status, said.trim()).into());
    }
    // fio may have printed other text before.
    let start = output.stdout.iter().position(|byte| *byte == b'{').ok_or("fio printed no JSON")?;
    Ok(serde_json::from_slice(&output.stdout[start..])?)
}

fn turn(job: &Value) -> Result<Turn, Failure> {
    let (read, write) = (&job["read"], &job["write"]);
    let bytes = number(&read["io_bytes"])? + number(&write["io_bytes"])?;
    let seconds = number(&read["runtime"])?.max(number(&write["runtime"])?) / 1e3;
    // In per cent of the job's time.
    let busy = (number(&job["usr_cpu"])? + number(&job["sys_cpu"])?) / 100.0;
    let cpu_seconds = busy * number(&job["job_runtime"])? / 1e3;
    Ok(Turn { bytes: bytes as u64, seconds, cpu_seconds, calls: None })
}

fn number(value: &Value) -> Result<f64, Failure> {
    value.as_f64().ok_or_else(|| "fio's JSON has no such number as 3.33's has".into())
}

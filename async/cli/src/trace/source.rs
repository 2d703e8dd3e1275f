//! Sources of a trace: a file, standard input, or the trace in this binary; decompressed.

use super::zstd::ZstdFrames;
use kvstrata_ffi::shown::shown_path;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bundled trace; `async/cli/data/README.md` has its origin and licence.
static BUNDLED: &[u8] = include_bytes!("../../data/conversation.jsonl.xz");

/// Requests of the bundled trace.
pub const BUNDLED_REQUESTS: u64 = 12_031;

/// The most memory of the xz decoder: more than `xz -9` needs, less than a hostile header can ask for.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// The longest magic number.
const MAGIC_BYTES: u64 = 6;

/// A trace to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceSource {
    /// The conversation trace in this binary.
    Bundled,
    /// A file, or anything else with a path.
    File(PathBuf),
    /// Standard input.
    Stdin,
}

/// The compression of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Uncompressed.
    Plain,
    /// gzip, one member or several.
    Gzip,
    /// xz, one stream or several.
    Xz,
    /// zstd, one frame or several.
    Zstd,
}

impl Encoding {
    /// Detects the compression by magic numbers, with which no JSON text begins. The
    /// file's name does not matter.
    #[must_use]
    pub fn detect(first: &[u8]) -> Encoding {
        let skippable = first.len() >= 4 && first[0] & 0xf0 == 0x50 && first[1..4] == [0x2a, 0x4d, 0x18];
        if first.starts_with(&[0x1f, 0x8b]) {
            Encoding::Gzip
        } else if first.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
            Encoding::Xz
        } else if first.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || skippable {
            Encoding::Zstd
        } else {
            Encoding::Plain
        }
    }
}

impl core::fmt::Display for Encoding {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Encoding::Plain => "plain text",
            Encoding::Gzip => "gzip",
            Encoding::Xz => "xz",
            Encoding::Zstd => "zstd",
        })
    }
}

impl core::fmt::Display for TraceSource {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            TraceSource::Bundled => f.write_str("conversation (bundled)"),
            TraceSource::File(path) => write!(f, "{}", shown_path(path)),
            TraceSource::Stdin => f.write_str("standard input"),
        }
    }
}

/// An open trace: lines of text, and the position in the compressed bytes.
pub(super) struct Opened {
    pub(super) lines: Box<dyn BufRead + Send>,
    pub(super) encoding: Encoding,
    /// Compressed bytes in total, if known.
    pub(super) input_bytes: Option<u64>,
    /// Compressed bytes taken so far.
    pub(super) consumed_bytes: Arc<AtomicU64>,
}

impl TraceSource {
    pub(super) fn open(&self) -> io::Result<Opened> {
        let (raw, input_bytes): (Box<dyn Read + Send>, Option<u64>) = match self {
            TraceSource::Bundled => (Box::new(BUNDLED), Some(BUNDLED.len() as u64)),
            TraceSource::Stdin => (Box::new(io::stdin()), None),
            TraceSource::File(path) => {
                let file = File::open(path)?;
                let metadata = file.metadata()?;
                if metadata.is_dir() {
                    return Err(io::Error::from(io::ErrorKind::IsADirectory));
                }
                (Box::new(file), metadata.is_file().then_some(metadata.len()))
            }
        };
        let consumed_bytes = Arc::new(AtomicU64::new(0));
        let mut raw = Counted { inner: raw, bytes: Arc::clone(&consumed_bytes) };
        let first = take_magic(&mut raw)?;
        let encoding = Encoding::detect(&first);
        let input = BufReader::with_capacity(64 << 10, io::Cursor::new(first).chain(raw));
        let lines: Box<dyn BufRead + Send> = match encoding {
            Encoding::Plain => Box::new(input),
            Encoding::Gzip => Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(input))),
            Encoding::Xz => {
                Box::new(BufReader::new(lzma_rust2::XzReader::new_mem_limit(input, true, XZ_MEMORY_KIB)))
            }
            Encoding::Zstd => Box::new(BufReader::new(ZstdFrames::new(input))),
        };
        Ok(Opened { lines, encoding, input_bytes, consumed_bytes })
    }
}

/// Reads the bytes of the longest magic number, or all bytes of a shorter input. A pipe
/// may deliver them one by one.
fn take_magic(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(MAGIC_BYTES as usize);
    input.by_ref().take(MAGIC_BYTES).read_to_end(&mut first)?;
    Ok(first)
}

/// Counts the bytes read, for the progress bar.
struct Counted<R> {
    inner: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        // Relaxed: the count is only displayed.
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

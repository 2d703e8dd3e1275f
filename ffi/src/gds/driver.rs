//! cuFile's driver, and the CUDA device of the transfers.
//!
//! A process has one cuFile, which counts its openers (1.14 and 1.19). Its settings are the first
//! opener's: another user in the same process, such as a storage library of the engine's, shares them.
//!
//! Invariants
//! - I1: each [`GdsDriver`] opens cuFile once and closes it once, unless cuFile says that it was
//!   open already.
//! - I2: `cuFileDriverOpen` is called only if [`MODULES`] can be read, and after `cuInit` has succeeded.
//!   If the file cannot be read, cuFile (1.14 and 1.19) tries again in a loop without end.
//! - I3: registered files and buffers hold the driver, so it outlives them; the device's context outlives
//!   the driver.

use super::error::{CuFileCode, GdsError};
use super::sys::{
    CONTROL_ALLOW_COMPAT, CuFileApi, CudaApi, CudaContext, FEATURE_P2P, PARAMETER_ALLOW_COMPAT, Properties,
    STATUS_NVME_P2P, Status,
};
use core::ffi::c_int;
use core::fmt;
use std::path::Path;
use std::sync::Arc;

/// The device to open, and the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct GdsOptions {
    pub(super) device: u32,
    pub(super) allow_compat: bool,
    pub(super) threads: usize,
}

impl GdsOptions {
    /// CUDA's device of this ordinal; 4 threads per volume.
    pub fn new(device: u32) -> GdsOptions {
        GdsOptions { device, allow_compat: false, threads: 4 }
    }

    /// Sets whether cuFile may bounce through host memory if it cannot transfer directly. Default: no.
    /// kvstrata's own path through pinned memory is the better bounce: it needs no
    /// [`DeviceSums`](super::DeviceSums).
    ///
    /// "No" is passed to cuFile itself (1.14 and later), which then refuses transfers that it cannot do
    /// directly. If other code in the process has opened cuFile before, that code's setting stays;
    /// [`GdsDescription::mode`] reports it.
    pub fn allow_compat(mut self, allow: bool) -> Self {
        self.allow_compat = allow;
        self
    }

    /// Sets the threads per volume, which is the number of its concurrent cuFile calls. Default: 4.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}

/// The path of bytes from a drive to the device, as cuFile reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Without host memory: compatibility mode is off, so cuFile refuses transfers that it cannot
    /// do directly.
    Direct,
    /// Directly if the file and the device allow it; cuFile silently bounces other transfers through
    /// host memory.
    Possible,
    /// Compatibility mode: every transfer bounces through host memory.
    Compat,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Direct => "direct",
            Mode::Possible => "direct where possible, else bounced by cuFile",
            Mode::Compat => "compatibility mode, bounced by cuFile",
        })
    }
}

/// The properties of the opened driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GdsDescription {
    /// cuFile's version number: 1190 is 1.19; 0 if cuFile does not report it.
    pub version: u32,
    /// Version of the nvidia-fs module; 0.0 without it.
    pub nvidia_fs: (u32, u32),
    /// The path of the bytes.
    pub mode: Mode,
    /// CUDA's ordinal of the device.
    pub device: u32,
    /// Bytes that cuFile passes to the kernel at a time; it splits longer transfers itself.
    pub max_direct_bytes: u64,
}

impl fmt::Display for GdsDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GdsDescription { version, nvidia_fs: (major, minor), mode, device, .. } = self;
        write!(f, "cuFile {}, ", dotted(*version))?;
        match (major, minor) {
            (0, 0) => f.write_str("no nvidia-fs")?,
            (major, minor) => write!(f, "nvidia-fs {major}.{minor}")?,
        }
        write!(f, ", device {device}, {mode}")
    }
}

/// 1190 → 1.19.
pub(super) fn dotted(version: u32) -> String {
    match version {
        0 => "of unknown version".to_owned(),
        version => format!("{}.{}", version / 1000, version % 1000 / 10),
    }
}

/// cuFile's driver, open, and one device's context.
pub struct GdsDriver {
    // In the order of their drop: cuFile's driver before the context that it uses (I3).
    session: Session,
    context: Context,
    description: GdsDescription,
}

impl GdsDriver {
    /// Loads the libraries and opens cuFile. Retains the device's primary context, which costs device
    /// memory if the process has none yet.
    ///
    /// # Errors
    /// [`GdsError`]: a library is missing, CUDA or cuFile refuses, or cuFile can only bounce and that is
    /// not allowed.
    pub fn open(options: GdsOptions) -> Result<Arc<GdsDriver>, GdsError> {
        let (api, cuda) = (CuFileApi::load()?, CudaApi::load()?);
        readable(Path::new(MODULES))?;
        GdsDriver::open_with(api, cuda, options)
    }

    pub(super) fn open_with(
        api: CuFileApi,
        cuda: CudaApi,
        options: GdsOptions,
    ) -> Result<Arc<GdsDriver>, GdsError> {
        if options.threads == 0 {
            return Err(GdsError::Option { option: "threads", value: options.threads });
        }
        let context = Context::retain(cuda, options.device)?;
        let session = Session::open(api, options.allow_compat)?;
        let properties = session.properties()?;
        let description = GdsDescription {
            version: api.version(),
            nvidia_fs: (properties.nvfs_major, properties.nvfs_minor),
            mode: mode(&properties, compat_allowed(&api, &properties)),
            device: options.device,
            max_direct_bytes: (properties.max_direct_io_kib as u64).saturating_mul(1024),
        };
        if description.mode == Mode::Compat && !options.allow_compat {
            return Err(GdsError::Compat { why: description.to_string() });
        }
        Ok(Arc::new(GdsDriver { session, context, description }))
    }

    /// Returns the properties of the opened driver.
    #[must_use]
    pub fn describe(&self) -> &GdsDescription {
        &self.description
    }

    pub(super) fn api(&self) -> &CuFileApi {
        &self.session.api
    }

    /// Makes the device's context the thread's current one until the guard is dropped; the thread's
    /// previous context then returns.
    pub(super) fn enter(&self) -> Result<Entered<'_>, c_int> {
        self.context.enter()
    }
}

/// The file in which cuFile looks for nvidia-fs. Missing in a kernel without modules, and in some sandboxes.
const MODULES: &str = "/proc/modules";

/// Checks that cuFile can read this file (I2).
pub(super) fn readable(path: &Path) -> Result<(), GdsError> {
    match std::fs::read(path) {
        Ok(_) => Ok(()),
        Err(source) => Err(GdsError::Unreadable { path: path.to_owned(), source }),
    }
}

impl fmt::Debug for GdsDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GdsDriver").field(&self.description).finish()
    }
}

/// Whether cuFile may bounce. cuFile's own setting decides; if it cannot be queried, the properties of
/// its configuration file do.
fn compat_allowed(api: &CuFileApi, properties: &Properties) -> bool {
    allowed(api).unwrap_or(properties.control_flags & CONTROL_ALLOW_COMPAT != 0)
}

/// Returns the setting of an open driver; `None` if cuFile is too old to be asked.
fn allowed(api: &CuFileApi) -> Option<bool> {
    let mut allowed = false;
    // SAFETY: `allowed` is ours.
    let status = unsafe { (api.get_bool?)(PARAMETER_ALLOW_COMPAT, &mut allowed) };
    (status.code == 0).then_some(allowed)
}

fn mode(properties: &Properties, compat_allowed: bool) -> Mode {
    let peer_to_peer =
        properties.feature_flags & FEATURE_P2P != 0 || properties.status_flags & STATUS_NVME_P2P != 0;
    match (compat_allowed, properties.nvfs_major > 0 || peer_to_peer) {
        (false, _) => Mode::Direct,
        (true, true) => Mode::Possible,
        (true, false) => Mode::Compat,
    }
}

/// Returns the refusal, if there is one.
pub(super) fn refused(status: Status) -> Option<CuFileCode> {
    let Status { code, cuda } = status;
    (code != 0).then_some(CuFileCode { code, cuda })
}

// ---- cuFile's driver ----

/// `CU_FILE_DRIVER_ALREADY_OPEN`.
const ALREADY_OPEN: c_int = 5026;

/// cuFile, opened.
struct Session {
    api: CuFileApi,
    /// This session opened cuFile (I1).
    ours: bool,
}

impl Session {
    /// The caller has initialised CUDA (I2).
    fn open(api: CuFileApi, allow_compat: bool) -> Result<Session, GdsError> {
        if let (false, Some(set)) = (allow_compat, api.set_bool) {
            // The setting holds only for the next open, and is refused if cuFile is open; `allowed` reads
            // the result.
            // SAFETY: takes only numbers.
            let _ = unsafe { set(PARAMETER_ALLOW_COMPAT, false) };
        }
        // SAFETY: no pointers; CUDA is initialised.
        let status = unsafe { (api.driver_open)() };
        match refused(status) {
            None => Ok(Session { api, ours: true }),
            Some(CuFileCode { code: ALREADY_OPEN, .. }) => Ok(Session { api, ours: false }),
            Some(code) => Err(GdsError::DriverRefused { operation: "cuFileDriverOpen", code }),
        }
    }

    fn properties(&self) -> Result<Properties, GdsError> {
        let mut properties = Properties::default();
        // SAFETY: `properties` is ours, and has the size that cuFile assumes (tests in `sys.rs`).
        let status = unsafe { (self.api.driver_properties)(&mut properties) };
        match refused(status) {
            None => Ok(properties),
            Some(code) => Err(GdsError::DriverRefused { operation: "cuFileDriverGetProperties", code }),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.ours {
            let close = self.api.driver_close_v2.unwrap_or(self.api.driver_close);
            // SAFETY: no pointers. No file or buffer of this driver is still registered, and none of its
            // calls is under way: they hold it (I3). A refusal has no receiver: cuFile then stays open
            // until the process ends.
            let _ = unsafe { close() };
        }
    }
}

// ---- the device's context ----

/// The device's primary context, which the engine's own CUDA calls use too.
struct Context {
    cuda: CudaApi,
    device: c_int,
    context: CudaContext,
}

// SAFETY: a context may be pushed and released from any thread (CUDA's driver is thread-safe); the
// pointer is never followed here.
unsafe impl Send for Context {}
// SAFETY: as above; no call through `&Context` changes it.
unsafe impl Sync for Context {}

impl Context {
    fn retain(cuda: CudaApi, ordinal: u32) -> Result<Context, GdsError> {
        let check = |operation, code| match code {
            0 => Ok(()),
            code => Err(GdsError::Cuda { operation, device: ordinal, code }),
        };
        // SAFETY: the flags must be 0, and are.
        check("cuInit", unsafe { (cuda.init)(0) })?;
        let mut device = 0;
        // An ordinal that is not an `int` is not a device either: CUDA refuses −1.
        let asked = c_int::try_from(ordinal).unwrap_or(-1);
        // SAFETY: `device` is ours.
        check("cuDeviceGet", unsafe { (cuda.device)(&mut device, asked) })?;
        let mut context = core::ptr::null_mut();
        // SAFETY: `context` is ours, and `device` is CUDA's.
        check("cuDevicePrimaryCtxRetain", unsafe { (cuda.context_retain)(&mut context, device) })?;
        Ok(Context { cuda, device, context })
    }

    fn enter(&self) -> Result<Entered<'_>, c_int> {
        // SAFETY: the context is retained as long as `self` lives.
        match unsafe { (self.cuda.context_push)(self.context) } {
            0 => Ok(Entered { context: self, _thread: core::marker::PhantomData }),
            code => Err(code),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once; no thread is inside it, since entering borrows `self`.
        let _ = unsafe { (self.cuda.context_release)(self.device) };
    }
}

/// Keeps the context on top of this thread's stack of contexts. Stays on its thread.
pub(super) struct Entered<'a> {
    context: &'a Context,
    _thread: core::marker::PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut popped = core::ptr::null_mut();
        // SAFETY: `popped` is ours; the context on top is the one that we pushed.
        let _ = unsafe { (self.context.cuda.context_pop)(&mut popped) };
    }
}

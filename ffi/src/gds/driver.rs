//! cuFile's driver, and the CUDA device that transfers are to reach.
//!
//! cuFile is one per process and counts who has opened it (1.14 and 1.19). Its settings are those of whoever
//! opened it first: another user in the same process (a storage library of the engine's, say) shares them.
//!
//! Invariants
//! - I1: each [`GdsDriver`] opens cuFile once and closes it once, unless cuFile says that it was open
//!   already.
//! - I2: `cuFileDriverOpen` is called only where [`MODULES`] can be read, and after `cuInit` has succeeded.
//!   Where it cannot, cuFile (1.14 and 1.19) reads it in a loop that has no end.
//! - I3: registered files and buffers hold the driver, so that it outlives them; the device's context
//!   outlives both.

use super::error::{CuFileCode, GdsError};
use super::sys::{
    CONTROL_ALLOW_COMPAT, CuFileApi, CudaApi, CudaContext, FEATURE_P2P, PARAMETER_ALLOW_COMPAT, Properties,
    STATUS_NVME_P2P, Status,
};
use core::ffi::c_int;
use core::fmt;
use std::path::Path;
use std::sync::Arc;

/// What to open, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct GdsOptions {
    pub(super) device: u32,
    pub(super) allow_compat: bool,
    pub(super) threads: usize,
}

impl GdsOptions {
    /// CUDA's device of this ordinal; 4 threads a volume.
    pub fn new(device: u32) -> GdsOptions {
        GdsOptions { device, allow_compat: false, threads: 4 }
    }

    /// Whether cuFile may bounce through host memory where it cannot go direct; no unless set. kvstrata's own way through
    /// pinned memory is then the better one: it needs no [`DeviceSums`](super::DeviceSums).
    ///
    /// "No" is said to cuFile itself (1.14 and later), which then refuses what it cannot do directly. Where somebody else in
    /// the process has opened cuFile before, their setting stays; [`GdsDescription::mode`] says which it is.
    pub fn allow_compat(mut self, allow: bool) -> Self {
        self.allow_compat = allow;
        self
    }

    /// Threads a volume, which is how many calls of cuFile it has under way at a time; 4 unless set.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
}

/// How bytes get from a drive to the device, as far as cuFile says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Without host memory: compatibility mode is switched off, so cuFile refuses what it cannot do directly.
    Direct,
    /// Directly where the file and the device allow it. cuFile bounces the rest through host memory without a word.
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

/// What the driver turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GdsDescription {
    /// Version of cuFile as it counts it: 1190 is 1.19; 0 where it does not say.
    pub version: u32,
    /// Version of the nvidia-fs module; 0.0 without it.
    pub nvidia_fs: (u32, u32),
    /// How bytes travel.
    pub mode: Mode,
    /// CUDA's ordinal of the device.
    pub device: u32,
    /// Bytes that cuFile hands to the kernel at a time; it cuts longer transfers itself.
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
    // In the order of their drop: cuFile's driver goes before the context that it uses (I3).
    session: Session,
    context: Context,
    description: GdsDescription,
}

impl GdsDriver {
    /// Loads the libraries and opens cuFile. Retains the device's primary context, which costs device memory if
    /// nobody in the process has one yet.
    ///
    /// # Errors
    /// [`GdsError`]: a library is missing, CUDA or cuFile refuses, or cuFile could only bounce and that is not allowed.
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

    /// What the driver turned out to be.
    #[must_use]
    pub fn describe(&self) -> &GdsDescription {
        &self.description
    }

    pub(super) fn api(&self) -> &CuFileApi {
        &self.session.api
    }

    /// Makes the device's context the thread's own until the guard is dropped, in front of whatever the thread had.
    pub(super) fn enter(&self) -> Result<Entered<'_>, c_int> {
        self.context.enter()
    }
}

/// Where cuFile looks for nvidia-fs. Missing in a kernel without modules, and in some sandboxes.
const MODULES: &str = "/proc/modules";

/// Whether cuFile would get past its look at this file (I2).
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

/// Whether cuFile may bounce, by its own word; the properties say what its configuration file said.
fn compat_allowed(api: &CuFileApi, properties: &Properties) -> bool {
    allowed(api).unwrap_or(properties.control_flags & CONTROL_ALLOW_COMPAT != 0)
}

/// The setting, of a driver that is open; none where cuFile is too old to be asked.
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

/// Some refusal, or none.
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
    /// It was us who opened it (I1).
    ours: bool,
}

impl Session {
    /// CUDA is initialised already (I2).
    fn open(api: CuFileApi, allow_compat: bool) -> Result<Session, GdsError> {
        if let (false, Some(set)) = (allow_compat, api.set_bool) {
            // Holds for the next open alone, and is refused where cuFile is open; what came of it, `allowed` finds out.
            // SAFETY: numbers only.
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
        // SAFETY: `properties` is ours, and as large as cuFile takes it to be (tests in `sys.rs`).
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
            // SAFETY: no pointers. No file or buffer of this driver's is registered any more, and none of its calls is under way:
            // they hold it (I3). A refusal has nobody to be told to: cuFile then stays open until the process ends.
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

// SAFETY: a context may be pushed and released from any thread (CUDA's driver is thread-safe); the pointer is never followed here.
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
        // An ordinal that is no `int` is no device either: CUDA refuses −1.
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
        // SAFETY: retained once, released once; nobody has entered it, since that borrows `self`.
        let _ = unsafe { (self.cuda.context_release)(self.device) };
    }
}

/// The context is on top of this thread's stack of contexts. Stays on its thread.
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

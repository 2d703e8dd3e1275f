//! What vendors install: CUDA driver and devices, nvcc, NIXL, cuFile. Looked for at run time only.

use super::Fact;
use crate::gds::{self, GdsError};
use crate::sys::library::Library;
use core::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};

type Init = unsafe extern "C" fn(u32) -> c_int;
type GetInt = unsafe extern "C" fn(*mut c_int) -> c_int;
type DeviceGet = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
type DeviceName = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;

/// The entries of the CUDA driver API that the probe calls.
struct Cuda {
    init: Init,
    version: GetInt,
    count: GetInt,
    device: DeviceGet,
    name: DeviceName,
}

impl Cuda {
    fn load(library: &Library) -> Option<Cuda> {
        let [init, version, count] =
            [c"cuInit", c"cuDriverGetVersion", c"cuDeviceGetCount"].map(|n| library.symbol(n));
        let [device, name] = [c"cuDeviceGet", c"cuDeviceGetName"].map(|n| library.symbol(n));
        Some(Cuda {
            // SAFETY: `CUresult cuInit(unsigned int)` in cuda.h; the library is never unloaded.
            init: unsafe { core::mem::transmute::<*mut core::ffi::c_void, Init>(init?.as_ptr()) },
            // SAFETY: `CUresult cuDriverGetVersion(int *)` in cuda.h.
            version: unsafe { core::mem::transmute::<*mut core::ffi::c_void, GetInt>(version?.as_ptr()) },
            // SAFETY: `CUresult cuDeviceGetCount(int *)` in cuda.h.
            count: unsafe { core::mem::transmute::<*mut core::ffi::c_void, GetInt>(count?.as_ptr()) },
            // SAFETY: `CUresult cuDeviceGet(CUdevice *, int)` in cuda.h, where CUdevice is an int.
            device: unsafe { core::mem::transmute::<*mut core::ffi::c_void, DeviceGet>(device?.as_ptr()) },
            // SAFETY: `CUresult cuDeviceGetName(char *, int, CUdevice)` in cuda.h.
            name: unsafe { core::mem::transmute::<*mut core::ffi::c_void, DeviceName>(name?.as_ptr()) },
        })
    }

    fn device_name(&self, ordinal: c_int) -> String {
        let mut device = 0;
        // SAFETY: the driver is initialised, and `device` is ours.
        let got = unsafe { (self.device)(&mut device, ordinal) };
        if got != 0 {
            return format!("device {ordinal}: error {got}");
        }
        let mut name = [0_u8; 128];
        // SAFETY: `name` is ours and 128 bytes long, which the driver is told.
        let got = unsafe { (self.name)(name.as_mut_ptr().cast(), 128, device) };
        let text = CStr::from_bytes_until_nul(&name).map(CStr::to_string_lossy);
        match (got, text) {
            (0, Ok(text)) => text.into_owned(),
            _ => format!("device {ordinal}: error {got}"),
        }
    }
}

const DRIVER: &str = "CUDA driver";
const DRIVER_WHY: &str = "device memory and copy engines; without it the device tier is simulated";
const DEVICES: &str = "CUDA devices";
const DEVICES_WHY: &str = "the tier that blocks are onboarded to";
const INSTALL: &str = "install NVIDIA's driver; in a container, run it with the NVIDIA container toolkit";

pub(super) fn cuda() -> Vec<Fact> {
    let none = |detail: String| {
        vec![
            Fact::not_found(DRIVER, detail, DRIVER_WHY, INSTALL),
            Fact::not_found(DEVICES, "no driver to ask", DEVICES_WHY, INSTALL),
        ]
    };
    let library = match Library::open(&[c"libcuda.so.1", c"libcuda.so"]) {
        Ok(library) => library,
        Err(error) => return none(error),
    };
    let Some(cuda) = Cuda::load(&library) else {
        return none("libcuda lacks an entry: not NVIDIA's?".to_owned());
    };
    let mut version = 0;
    // SAFETY: allowed before cuInit; `version` is ours.
    let asked = unsafe { (cuda.version)(&mut version) };
    let driver = match asked {
        0 => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        error => format!("version unknown (error {error})"),
    };
    // SAFETY: flags must be 0, and are.
    let init = unsafe { (cuda.init)(0) };
    if init != 0 {
        let remedy = "check `nvidia-smi`: 100 is no device, 803 a driver older than its library";
        let detail = format!("{driver}, but cuInit says {init}");
        return vec![
            Fact::limited(DRIVER, detail, DRIVER_WHY, remedy),
            Fact::not_found(DEVICES, format!("cuInit says {init}"), DEVICES_WHY, remedy),
        ];
    }
    let mut count = 0;
    // SAFETY: the driver is initialised, and `count` is ours.
    let asked = unsafe { (cuda.count)(&mut count) };
    let driver = Fact::found(DRIVER, driver, DRIVER_WHY);
    let devices = match (asked, count) {
        (0, 1..) => {
            let names: Vec<_> = (0..count).map(|ordinal| cuda.device_name(ordinal)).collect();
            Fact::found(DEVICES, format!("{count}: {}", names.join(", ")), DEVICES_WHY)
        }
        (error, _) => {
            let remedy = "check `nvidia-smi` and CUDA_VISIBLE_DEVICES";
            Fact::not_found(DEVICES, format!("none (code {error})"), DEVICES_WHY, remedy)
        }
    };
    vec![driver, devices]
}

pub(super) fn nvcc() -> Fact {
    let name = "nvcc";
    let why = "compiles the gather and scatter kernels when kvstrata is built; not needed to run it";
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = variable("KVSTRATA_NVCC") {
        return match path.is_file() {
            true => Fact::found(name, format!("{} (KVSTRATA_NVCC)", path.display()), why),
            false => {
                let detail = format!("KVSTRATA_NVCC is {}, which is no file", path.display());
                Fact::not_found(name, detail, why, "correct KVSTRATA_NVCC, or unset it")
            }
        };
    }
    let home = variable("CUDA_HOME").map(|home| home.join("bin"));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        home.into_iter().chain(std::env::split_paths(&on_path)).chain([PathBuf::from("/usr/local/cuda/bin")]);
    match folders.map(|folder| folder.join("nvcc")).find(|path| path.is_file()) {
        Some(path) => Fact::found(name, path.display().to_string(), why),
        None => {
            let remedy = "install the CUDA toolkit and set CUDA_HOME, or KVSTRATA_NVCC to the compiler";
            Fact::not_found(name, "not in KVSTRATA_NVCC, CUDA_HOME or PATH", why, remedy)
        }
    }
}

pub(super) fn nixl() -> Fact {
    let why = "moves blocks to and from other machines";
    let remedy = "install NIXL and put its lib folder into LD_LIBRARY_PATH; needed for the remote tier only";
    match Library::open(&[c"libnixl.so", c"libnixl_capi.so"]) {
        Ok(_) => Fact::found("NIXL", "libnixl loads", why),
        Err(error) => Fact::not_found("NIXL", error, why, remedy),
    }
}

/// Loads the library and looks for its entries; opening its driver would take device memory.
pub(super) fn cufile() -> Fact {
    let (name, why) = ("cuFile", "GPUDirect Storage: drive to device with no copy in host memory");
    let version = match gds::installed() {
        Ok(version) => version,
        Err(error) => {
            let detail = match error {
                GdsError::LibraryMissing { why, .. } => why,
                GdsError::SymbolMissing { library, symbol } => format!("{library} lacks {symbol}"),
                other => other.to_string(),
            };
            let remedy = "install the CUDA toolkit's GPUDirect Storage (libcufile); until then copies bounce through host memory";
            return Fact::not_found(name, detail, why, remedy);
        }
    };
    if Path::new("/proc/driver/nvidia-fs").exists() {
        return Fact::found(name, format!("libcufile {version}, and the nvidia-fs module"), why);
    }
    let detail = format!(
        "libcufile {version}, without the nvidia-fs module: it bounces, unless by PCI peer-to-peer DMA"
    );
    let remedy = "load nvidia-fs, or let cuFile use PCI peer-to-peer DMA (`use_pci_p2pdma` in cufile.json)";
    Fact::limited(name, detail, why, remedy)
}

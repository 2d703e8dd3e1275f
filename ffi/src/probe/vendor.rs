//! Vendor software: CUDA driver and devices, nvcc, NIXL, cuFile. Looked for at run time only.

use super::Fact;
use crate::cuda::{CudaDriver, CudaError};
use crate::gds::{self, GdsError};
use crate::shown::shown_path;
use crate::sys::library::Library;
use std::path::{Path, PathBuf};

const DRIVER: &str = "CUDA driver";
const DRIVER_WHY: &str = "gives device memory and copy engines; without it the device tier is simulated";
const DEVICES: &str = "CUDA devices";
const DEVICES_WHY: &str = "blocks are onboarded to device memory";
const INSTALL: &str = "install NVIDIA's driver, and run containers with its container toolkit";

pub(super) fn cuda() -> Vec<Fact> {
    let none = |detail: String| {
        vec![
            Fact::not_found(DRIVER, detail, DRIVER_WHY, INSTALL),
            Fact::not_found(DEVICES, "no driver to ask", DEVICES_WHY, INSTALL),
        ]
    };
    let driver = match CudaDriver::load() {
        Ok(driver) => driver,
        Err(CudaError::LibraryMissing { why }) => return none(why),
        Err(CudaError::SymbolMissing { symbol }) => {
            return none(format!("libcuda lacks {symbol}: too old, or not NVIDIA's"));
        }
        Err(other) => {
            let remedy = "check `nvidia-smi`; 100 means no device, 803 a driver older than its library; \
                          CUDA 12.0 is the minimum";
            return vec![
                Fact::limited(DRIVER, other.to_string(), DRIVER_WHY, remedy),
                Fact::not_found(DEVICES, "the driver shows none", DEVICES_WHY, remedy),
            ];
        }
    };
    let found = driver.describe();
    let (major, minor) = found.version;
    let fact = match found.batch_copies {
        true => Fact::found(DRIVER, format!("CUDA {major}.{minor}, batch copies"), DRIVER_WHY),
        false => {
            let detail = format!("CUDA {major}.{minor}, one copy a call");
            Fact::limited(
                DRIVER,
                detail,
                DRIVER_WHY,
                "install a driver of CUDA 12.8 or later, which takes many copies a call",
            )
        }
    };
    let devices: Vec<_> = (0..found.devices).map(|ordinal| driver.describe_device(ordinal)).collect();
    let words = devices.iter().map(|device| match device {
        Ok(device) => device.to_string(),
        Err(error) => error.to_string(),
    });
    let words: Vec<_> = words.collect();
    let detail = words.join("; ");
    let devices = match devices.iter().all(Result::is_ok) {
        true => Fact::found(DEVICES, detail, DEVICES_WHY),
        false => Fact::limited(DEVICES, detail, DEVICES_WHY, "check `nvidia-smi` and the system log"),
    };
    vec![fact, devices]
}

pub(super) fn nvcc() -> Fact {
    let name = "nvcc";
    let why = "compiles the gather and scatter kernels when kvstrata is built; not needed to run it";
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = variable("KVSTRATA_NVCC") {
        return match path.is_file() {
            true => Fact::found(name, format!("{} (KVSTRATA_NVCC)", shown_path(&path)), why),
            false => {
                let detail = format!("KVSTRATA_NVCC is {}, which is not a file", shown_path(&path));
                Fact::not_found(name, detail, why, "correct KVSTRATA_NVCC, or unset it")
            }
        };
    }
    // The places where `kernels/build.rs` looks, in its order.
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variable).map(|home| home.join("bin"));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let folders = homes.chain(std::env::split_paths(&on_path)).chain([PathBuf::from("/usr/local/cuda/bin")]);
    match folders.map(|folder| folder.join("nvcc")).find(|path| path.is_file()) {
        Some(path) => Fact::found(name, shown_path(&path).to_string(), why),
        None => {
            let remedy = "install the CUDA toolkit and set CUDA_HOME, or KVSTRATA_NVCC to the compiler";
            Fact::not_found(
                name,
                "not in KVSTRATA_NVCC, CUDA_HOME, CUDA_PATH, PATH or /usr/local/cuda",
                why,
                remedy,
            )
        }
    }
}

/// Reports the kernels that this program was built with.
pub(super) fn kernels() -> Fact {
    let (name, why) = (
        "kernels",
        "copy many small pieces in one launch, permute, sum and convert; without them the copy engine copies",
    );
    match kvstrata_kernels::images() {
        Ok(_) => Fact::found(name, kvstrata_kernels::toolkit(), why),
        Err(reason) => {
            Fact::not_found(name, reason, why, "build kvstrata where nvcc is installed (KVSTRATA_NVCC)")
        }
    }
}

pub(super) fn nixl() -> Fact {
    let why = "moves blocks to and from other machines";
    let remedy = "install NIXL and add its lib folder to LD_LIBRARY_PATH; only the remote tier needs it";
    match Library::open(&[c"libnixl.so", c"libnixl_capi.so"]) {
        Ok(_) => Fact::found("NIXL", "libnixl loads", why),
        Err(error) => Fact::not_found("NIXL", error, why, remedy),
    }
}

/// Loads the library and looks for its entries. It does not open the driver, which would take device memory.
pub(super) fn cufile() -> Fact {
    let (name, why) =
        ("cuFile", "GPUDirect Storage moves blocks between drive and device without a copy in host memory");
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
        "libcufile {version}, without the nvidia-fs module: transfers bounce, except by PCI peer-to-peer DMA"
    );
    let remedy = "load nvidia-fs, or let cuFile use PCI peer-to-peer DMA (`use_pci_p2pdma` in cufile.json)";
    Fact::limited(name, detail, why, remedy)
}

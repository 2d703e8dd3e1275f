//! A device's properties, as the driver reports them without a context.

use super::error::{CudaError, Fault, check};
use super::sys::{Api, CUdevice, CUdevice_attribute as Attribute, CUuuid};
use core::ffi::{CStr, c_char, c_int};
use core::fmt;

/// A device's properties.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceDescription {
    /// CUDA's number of the device.
    pub ordinal: u32,
    /// The name, for example "NVIDIA H100 80GB HBM3".
    pub name: String,
    /// The identity of the device, unique among all devices and the same in every process.
    pub uuid: [u8; 16],
    /// Domain, bus and device on the PCI bus, as in `/sys/bus/pci/devices`, in lower case.
    pub pci_bus_id: String,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Maximum threads per block.
    pub block_threads: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

impl fmt::Display for DeviceDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceDescription {
            ordinal,
            name,
            multiprocessors,
            capability: (major, minor),
            memory_bytes,
            ..
        } = self;
        let gib = memory_bytes >> 30;
        write!(f, "device {ordinal}: {name}, {gib} GiB, {multiprocessors} SMs, compute {major}.{minor}")
    }
}

/// Reports the properties of a device, if the driver shows `count` of them. Makes no context.
pub(super) fn describe(
    api: &Api,
    count: u32,
    ordinal: u32,
) -> Result<(CUdevice, DeviceDescription), CudaError> {
    if ordinal >= count {
        return Err(CudaError::NoSuchDevice { ordinal, count });
    }
    ask(api, ordinal).map_err(|fault| CudaError::Refused { device: ordinal, fault })
}

fn ask(api: &Api, ordinal: u32) -> Result<(CUdevice, DeviceDescription), Fault> {
    let mut device = 0;
    // SAFETY: `device` is ours; the ordinal is below a count that is an `int`.
    check("cuDeviceGet", unsafe { (api.cuDeviceGet)(&mut device, ordinal as c_int) })?;
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: `value` is ours, `device` is the driver's.
        let answer = unsafe { (api.cuDeviceGetAttribute)(&mut value, attribute, device) };
        check("cuDeviceGetAttribute", answer).map(|()| u32::try_from(value).unwrap_or(0))
    };
    let mut name = [0_u8; 256];
    // SAFETY: `name` is ours, and has the length that the driver is told.
    let answer =
        unsafe { (api.cuDeviceGetName)(name.as_mut_ptr().cast::<c_char>(), name.len() as c_int, device) };
    check("cuDeviceGetName", answer)?;
    let mut bus = [0_u8; 32];
    // SAFETY: as above.
    let answer =
        unsafe { (api.cuDeviceGetPCIBusId)(bus.as_mut_ptr().cast::<c_char>(), bus.len() as c_int, device) };
    check("cuDeviceGetPCIBusId", answer)?;
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` is ours.
    check("cuDeviceGetUuid", unsafe { (api.cuDeviceGetUuid_v2)(&mut uuid, device) })?;
    let mut bytes = 0;
    // SAFETY: `bytes` is ours.
    check("cuDeviceTotalMem", unsafe { (api.cuDeviceTotalMem_v2)(&mut bytes, device) })?;
    let text = |bytes: &[u8]| {
        CStr::from_bytes_until_nul(bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let description = DeviceDescription {
        ordinal,
        name: text(&name),
        uuid: uuid.bytes.map(|byte| byte.cast_unsigned()),
        pci_bus_id: text(&bus).to_lowercase(),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        block_threads: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        memory_bytes: bytes as u64,
    };
    Ok((device, description))
}

//! The port to a device's memory: the only way in which this machine's CPU reaches a byte of it.

use super::Storage;
use core::fmt;

/// Copies between host memory and the blocks of a device.
///
/// Both calls return when the bytes have arrived. Concurrent calls on different blocks do not disturb
/// each other; on the same block, a copy that overlaps another one fails with [`DeviceError::Busy`]
/// rather than tearing bytes, if the device can tell.
pub trait DevicePort: Storage {
    /// Bytes per block; block `b` starts at `base_address() + b × block_bytes()`.
    fn block_bytes(&self) -> usize;

    /// Copies `src` to `offset` within `block`.
    ///
    /// # Errors
    ///
    /// [`DeviceError`]; the bytes in the range are unspecified after
    /// [`DeviceError::Failed`], untouched otherwise.
    fn copy_in(&self, block: u32, offset: usize, src: &[u8]) -> Result<(), DeviceError>;

    /// Copies from `offset` within `block` to `dst`.
    ///
    /// # Errors
    ///
    /// [`DeviceError`]; the bytes in `dst` are unspecified after
    /// [`DeviceError::Failed`], untouched otherwise.
    fn copy_out(&self, block: u32, offset: usize, dst: &mut [u8]) -> Result<(), DeviceError>;
}

/// The reason why a copy to or from a device failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceError {
    /// The range is not inside one block of the device.
    OutOfRange {
        /// The requested block.
        block: u32,
        /// The first requested byte, within the block.
        offset: usize,
        /// The number of requested bytes.
        len: usize,
        /// The number of the device's blocks.
        blocks: u32,
        /// Bytes per block.
        block_bytes: usize,
    },
    /// The device has no such layer, or its layer is not as long as the bytes to be copied.
    Layer {
        /// The requested layer.
        layer: u32,
        /// Bytes to be copied.
        len: usize,
        /// The number of the device's layers.
        layers: u32,
        /// Bytes of that layer of a block; 0 where there is none.
        layer_bytes: usize,
    },
    /// Another copy is using the block.
    Busy {
        /// The block.
        block: u32,
    },
    /// The device's driver refused or failed.
    Failed {
        /// The driver's own code.
        code: i32,
        /// Whether the same call may succeed later.
        retryable: bool,
    },
}

impl DeviceError {
    /// Checks that `offset..offset + len` lies in `block`, for implementations of [`DevicePort`].
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`] with the range and the device's shape.
    #[inline]
    pub const fn check_range(
        block: u32,
        offset: usize,
        len: usize,
        blocks: u32,
        block_bytes: usize,
    ) -> Result<(), DeviceError> {
        if block < blocks && len <= block_bytes && offset <= block_bytes - len {
            Ok(())
        } else {
            Err(DeviceError::OutOfRange { block, offset, len, blocks, block_bytes })
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::OutOfRange { block, offset, len, blocks, block_bytes } => {
                write!(
                    f,
                    "{len} bytes at offset {offset} of block {block} are outside the device: \
                     it has {blocks} blocks "
                )?;
                write!(f, "of {block_bytes} bytes")
            }
            DeviceError::Layer { layer, len, layers, layer_bytes } => {
                write!(
                    f,
                    "{len} bytes for layer {layer}: it has {layer_bytes}, and the device {layers} layers; "
                )?;
                f.write_str("copy whole layers")
            }
            DeviceError::Busy { block } => {
                write!(f, "block {block} is in use by another copy; try again when that copy has ended")
            }
            DeviceError::Failed { code, retryable: true } => {
                write!(f, "the device failed with code {code}; a retry may succeed")
            }
            DeviceError::Failed { code, retryable: false } => {
                write!(f, "the device failed with code {code}; a retry cannot succeed")
            }
        }
    }
}

impl core::error::Error for DeviceError {}

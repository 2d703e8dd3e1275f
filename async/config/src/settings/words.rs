//! Settings with a fixed set of named values.

use super::kind::Named;
use kvstrata_backends::disk::AdmissionPolicy;
use kvstrata_core::Policy;
use kvstrata_core::layout::{DType, HeadOrder, Model};
use kvstrata_ffi::disk::Backend;
pub use kvstrata_tiers::WriteMode;

macro_rules! words {
    ($($(#[doc = $of:literal])+ $name:ident { $($(#[$inner:meta])+ $variant:ident = $word:literal,)+ })+) => {$(
        $(#[doc = $of])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$inner])+ $variant,)+ }

        impl Named for $name {
            fn all() -> Vec<$name> {
                vec![$($name::$variant),+]
            }
            fn name(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(Named::name(*self))
            }
        }
    )+};
}

words! {
    /// The kind of device that the device tier uses.
    DeviceKind {
        /// Host memory that acts as a device, with its own address space.
        Sim = "sim",
        /// An NVIDIA GPU.
        Cuda = "cuda",
        /// A GPU if this machine has one with room for the blocks, otherwise `Sim`.
        Auto = "auto",
    }
    /// The function that computes block hashes from tokens.
    HashFunction {
        /// AES-128-CBC-MAC under the secret of the deployment.
        Keyed = "keyed",
        /// XXH3-128, for deployments where only trusted callers choose the tokens.
        Xxh3 = "xxh3",
    }
    /// Sources for which checksums of blocks are verified. Reads from the disk are verified in any case.
    Verify {
        /// Host memory and the disk.
        All = "all",
        /// The disk.
        Disk = "disk",
        /// As `Disk`: damaged bytes of host memory are served.
        Nothing = "nothing",
    }
    /// The kind of cache that layers keep.
    GroupKind {
        /// Keys and values of all tokens.
        Full = "full",
        /// Keys and values of the last tokens.
        Window = "window",
        /// One latent per token (MLA).
        Mla = "mla",
        /// A state of fixed size, independent of the number of tokens (Mamba, linear attention).
        State = "state",
    }
}

impl Named for WriteMode {
    fn all() -> Vec<WriteMode> {
        WriteMode::ALL.to_vec()
    }
    fn name(self) -> &'static str {
        WriteMode::name(self)
    }
}

impl Named for Policy {
    fn all() -> Vec<Policy> {
        Policy::ALL.to_vec()
    }
    fn name(self) -> &'static str {
        Policy::name(self)
    }
}

impl Named for AdmissionPolicy {
    fn all() -> Vec<AdmissionPolicy> {
        AdmissionPolicy::ALL.to_vec()
    }
    fn name(self) -> &'static str {
        AdmissionPolicy::name(self)
    }
}

impl Named for Backend {
    fn all() -> Vec<Backend> {
        vec![Backend::Auto, Backend::UringDirect, Backend::UringBuffered, Backend::Blocking]
    }
    fn name(self) -> &'static str {
        match self {
            Backend::Auto => "auto",
            Backend::UringDirect => "uring",
            Backend::UringBuffered => "uring-buffered",
            Backend::Blocking => "threads",
        }
    }
}

/// When the parts of a file that were never written are filled: writes to such parts are slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFill {
    /// Before the file is used.
    First,
    /// While the file is used, whenever there are no requests.
    Background,
    /// Never.
    No,
}

impl Named for DiskFill {
    fn all() -> Vec<DiskFill> {
        vec![DiskFill::First, DiskFill::Background, DiskFill::No]
    }
    fn name(self) -> &'static str {
        match self {
            DiskFill::First => "first",
            DiskFill::Background => "background",
            DiskFill::No => "no",
        }
    }
}

impl Named for HeadOrder {
    fn all() -> Vec<HeadOrder> {
        vec![HeadOrder::Nhd, HeadOrder::Hnd]
    }
    fn name(self) -> &'static str {
        match self {
            HeadOrder::Nhd => "nhd",
            HeadOrder::Hnd => "hnd",
        }
    }
}

impl Named for DType {
    fn all() -> Vec<DType> {
        DType::ALL.to_vec()
    }
    fn name(self) -> &'static str {
        DType::name(self)
    }
    /// Also accepts the other names that frameworks use.
    fn find(name: &str) -> Option<DType> {
        name.parse().ok()
    }
}

impl Named for &'static Model {
    fn all() -> Vec<&'static Model> {
        Model::ALL.iter().collect()
    }
    fn name(self) -> &'static str {
        self.name
    }
}

//! Settings that are one word of several.

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
    /// What the device tier is made of.
    DeviceKind {
        /// Host memory posing as a device, with an address space of its own.
        Sim = "sim",
        /// An NVIDIA GPU.
        Cuda = "cuda",
        /// A GPU where this machine has one with room for the blocks, otherwise `Sim`.
        Auto = "auto",
    }
    /// Which function makes block hashes from tokens.
    HashFunction {
        /// AES-128-CBC-MAC under the secret of the deployment.
        Keyed = "keyed",
        /// XXH3-128, for tokens that only trusted callers choose.
        Xxh3 = "xxh3",
    }
    /// What is compared with its checksum on its way to the device.
    Verify {
        /// What comes from the host and from the disk.
        All = "all",
        /// What comes from the disk.
        Disk = "disk",
        /// Nothing: wrong bytes are then served.
        Nothing = "nothing",
    }
    /// What layers keep of the tokens before.
    GroupKind {
        /// Keys and values of all tokens.
        Full = "full",
        /// Keys and values of the last tokens only.
        Window = "window",
        /// One latent a token (MLA).
        Mla = "mla",
        /// A state of a fixed size, whatever the number of tokens (Mamba, linear attention).
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

/// When what was never written of a file is written through: it is slower to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFill {
    /// Before it is used.
    First,
    /// While it is used, whenever nobody asks for anything.
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
    /// Also the other names of frameworks.
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

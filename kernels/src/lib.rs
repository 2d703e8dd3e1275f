//! The place of the CUDA kernels: gather (layer-separated → contiguous) and scatter (back), and the choice between them and the copy
//! engine.
//!
//! Nothing is here yet. The device tier that exists is simulated (`kvstrata_ffi::device::SimDevice`), moves blocks that are contiguous,
//! and needs no kernel. The crate stands where the kernels will, so that the direction of dependencies is fixed: core ← kernels ←
//! façade.

//! kvstrata kernels.

//! The routes that a plan's bytes can take between the host and a device, or within one.

/// How a plan is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// The copy engine, a call a piece.
    Single,
    /// The copy engine, one call for all pieces.
    Batch,
    /// The copy engine, a call for pieces at even distances.
    Rows,
    /// A kernel, one launch for all.
    Kernel,
}

impl Route {
    /// All of them.
    pub const ALL: [Route; 4] = [Route::Single, Route::Batch, Route::Rows, Route::Kernel];

    /// Its name in files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Route::Single => "single",
            Route::Batch => "batch",
            Route::Rows => "rows",
            Route::Kernel => "kernel",
        }
    }
}

/// What the costs of a plan depend on: its fragments, not its pages (vllm-project/vllm#57342).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragments {
    /// Pieces in all.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Families of pieces at even distances.
    pub families: u64,
    /// The kernel's vector, in bytes.
    pub width: u64,
}

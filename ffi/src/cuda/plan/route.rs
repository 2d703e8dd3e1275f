//! The routes that a plan's bytes can take between the host and a device, or within one.

/// A way to carry out a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// The copy engine, one call per piece.
    Single,
    /// The copy engine, one call for all pieces.
    Batch,
    /// The copy engine, one call for pieces at equal distances.
    Rows,
    /// A kernel, one launch for all pieces.
    Kernel,
}

impl Route {
    /// All routes.
    pub const ALL: [Route; 4] = [Route::Single, Route::Batch, Route::Rows, Route::Kernel];

    /// Returns the route's name in files and reports.
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

/// The properties of a plan that decide its cost: its fragments, not its pages (vllm-project/vllm#57342).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragments {
    /// All pieces.
    pub pieces: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Families of pieces at equal distances.
    pub families: u64,
    /// The kernel's vector, in bytes.
    pub width: u64,
}

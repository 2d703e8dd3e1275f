//! The blocks of a sequence that a group of layers needs.

impl Needs {
    /// Returns the blocks that a prefix of so many tokens needs.
    pub(crate) fn blocks(self, tokens: u64) -> std::ops::Range<usize> {
        let index = |tokens: u64| usize::try_from(tokens).unwrap_or(usize::MAX);
        match self {
            Needs::All { page } => 0..index(tokens / page),
            Needs::Last { page, window } => index(tokens.saturating_sub(window) / page)..index(tokens / page),
            Needs::State { page } => index(tokens / page).saturating_sub(1)..index(tokens / page),
        }
    }

    /// Describes the needs, for people.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Needs::All { page } => format!("pages of {page} tokens"),
            Needs::Last { page, window } => format!("pages of {page} tokens, a window of {window}"),
            Needs::State { page } => format!("a state every {page} tokens"),
        }
    }

    /// Returns the tokens a block; for a state, the tokens from one kept state to the next.
    #[must_use]
    pub fn page(self) -> u64 {
        match self {
            Needs::All { page } | Needs::Last { page, .. } | Needs::State { page } => page,
        }
    }
}

/// The part of a sequence that a group needs, so that a prefix is usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// All blocks.
    All {
        /// Tokens a block.
        page: u64,
    },
    /// The blocks that a window reaches back to.
    Last {
        /// Tokens a block.
        page: u64,
        /// Tokens that the window reaches back.
        window: u64,
    },
    /// The state that was kept at the end of the prefix.
    State {
        /// Tokens from one kept state to the next.
        page: u64,
    },
}

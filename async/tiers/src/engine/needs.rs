//! The blocks of a sequence that a group of layers needs.

impl Needs {
    /// Which blocks a prefix of so many tokens needs.
    pub(crate) fn blocks(self, tokens: u64) -> std::ops::Range<usize> {
        let index = |tokens: u64| usize::try_from(tokens).unwrap_or(usize::MAX);
        match self {
            Needs::All { page } => 0..index(tokens / page),
            Needs::Last { page, window } => index(tokens.saturating_sub(window) / page)..index(tokens / page),
            Needs::State { page } => index(tokens / page).saturating_sub(1)..index(tokens / page),
        }
    }

    /// For people.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Needs::All { page } => format!("pages of {page} tokens"),
            Needs::Last { page, window } => format!("pages of {page} tokens, a window of {window}"),
            Needs::State { page } => format!("a state every {page} tokens"),
        }
    }

    /// Tokens a block; of a state, from one that is kept to the next.
    #[must_use]
    pub fn page(self) -> u64 {
        match self {
            Needs::All { page } | Needs::Last { page, .. } | Needs::State { page } => page,
        }
    }
}

/// What of a sequence a group needs, for a prefix to be usable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// All blocks.
    All {
        /// Tokens a block.
        page: u64,
    },
    /// Those that a window reaches back to.
    Last {
        /// Tokens a block.
        page: u64,
        /// Tokens that it reaches back.
        window: u64,
    },
    /// The state that was kept at the end of the prefix.
    State {
        /// Tokens from one that is kept to the next.
        page: u64,
    },
}

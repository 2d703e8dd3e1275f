//! Tools that tests of several crates share. Crates depend on it for tests and measurements only; it knows
//! none of them.
//!
//! | file | contents |
//! |---|---|
//! | `arrows.rs` | the imports between the files of a crate, and their circles |
//! | `counting.rs` | an allocator that counts, for tests that nothing is allocated |
//! | `fields.rs` | the fields that files other than their struct's touch |
//! | `forge.rs` | tokens and salts for a wanted XXH3 hash |
//! | `forked.rs` | a forked child |
//! | `named_paths.rs` | the paths that documents and comments name, and whether they exist |
//! | `prose.rs` | the words that make English hard to read, counted for each text |
//! | `rust_text.rs` | the comments, literals and test names of a source |
//! | `virtual_time.rs` | tasks of one thread in virtual time |
//! | `seeds.rs` | which seeds a simulation runs, on all cores, and its report on those that fail |

pub mod arrows;
pub mod counting;
pub mod fields;
pub mod forge;
pub mod forked;
pub mod named_paths;
pub mod prose;
pub mod rust_text;
pub mod seeds;
pub mod virtual_time;

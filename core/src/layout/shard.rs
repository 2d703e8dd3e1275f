//! Tensor parallelism: the heads of a rank, and the transfers between ranks when the degree changes.
//!
//! ```text
//!   8 heads, TP 4 → TP 8:  rank 1 of 4 has heads 2, 3   →  ranks 2 and 3 of 8, a head each
//!   8 heads, TP 8 → TP 4:  ranks 2 and 3 of 8           →  rank 1 of 4, two slices of one block
//!   8 heads, TP 3:         0 1 │ 2 3 4 │ 5 6 7             degrees that do not divide: as even as possible
//!   2 heads, TP 4:         0 │ 0 │ 1 │ 1                   fewer heads than ranks: replicated (GQA)
//!   MLA:                   one latent, on every rank       the case of one head
//! ```

use super::Slice;
use core::fmt;
use core::ops::Range;

/// One rank of a tensor-parallel group, and its heads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shard {
    heads: u32,
    degree: u32,
    rank: u32,
}

/// The error for a rank that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardError {
    /// KV heads of the model.
    pub heads: u32,
    /// Ranks of the group.
    pub degree: u32,
    /// The requested rank.
    pub rank: u32,
}

impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShardError { heads, degree, rank } = self;
        match (heads, degree) {
            (0, _) => f.write_str("heads = 0: must be at least 1 (1 for MLA)"),
            (_, 0) => f.write_str("degree = 0: must be at least 1"),
            _ => write!(f, "rank = {rank}: must be below the degree, {degree}"),
        }
    }
}

impl core::error::Error for ShardError {}

impl Shard {
    /// Rank `rank` of `degree`, of a model with `heads` KV heads in all (1 for MLA).
    ///
    /// # Errors
    ///
    /// A number is 0, or the rank is not below the degree.
    pub const fn new(heads: u32, degree: u32, rank: u32) -> Result<Shard, ShardError> {
        if heads == 0 || degree == 0 || rank >= degree {
            return Err(ShardError { heads, degree, rank });
        }
        Ok(Shard { heads, degree, rank })
    }

    /// The rank's heads, in the model's numbers; at least one.
    #[must_use]
    pub const fn heads(&self) -> Range<u32> {
        let (heads, degree, rank) = (self.heads as u64, self.degree as u64, self.rank as u64);
        let first = rank * heads / degree;
        let end = (rank + 1) * heads / degree;
        // Fewer heads than ranks: some ranks' share begins and ends within one head.
        let end = if end > first { end } else { first + 1 };
        first as u32..end as u32
    }

    /// The heads that `self` has and `dst` needs, in the numbers of both; none if they have none in common.
    #[must_use]
    pub fn slice_for(&self, dst: &Shard) -> Option<Slice> {
        let (from, to) = (self.heads(), dst.heads());
        let (first, end) = (from.start.max(to.start), from.end.min(to.end));
        (first < end).then(|| Slice::Moved {
            src: first - from.start,
            dst: first - to.start,
            count: end - first,
        })
    }

    /// The ranks of a group of `degree` from which this rank gets its heads, each head from one: rank,
    /// and slice. If heads are replicated, the requesting ranks spread over the replicas.
    pub fn sources(self, degree: u32) -> impl Iterator<Item = (u32, Slice)> {
        let wanted = self.heads();
        let mut next = wanted.start;
        core::iter::from_fn(move || {
            if next >= wanted.end || degree == 0 {
                return None;
            }
            let ranks = ranks_with(self.heads, degree, next);
            let rank = ranks.start + self.rank % (ranks.end - ranks.start);
            let has = Shard { heads: self.heads, degree, rank }.heads();
            let end = has.end.min(wanted.end);
            let slice = Slice::Moved { src: next - has.start, dst: next - wanted.start, count: end - next };
            next = end;
            Some((rank, slice))
        })
    }
}

/// The ranks that have a head.
fn ranks_with(heads: u32, degree: u32, head: u32) -> Range<u32> {
    let has = |rank: &u32| Shard { heads, degree, rank: *rank }.heads().contains(&head);
    // A rank's first head grows with the rank, so guess and look around.
    let guess = (u64::from(head) * u64::from(degree) / u64::from(heads)) as u32;
    let around = guess.saturating_sub(1)..degree;
    let first = around.clone().find(has).unwrap_or(guess);
    let end = (first..degree).take_while(has).count() as u32;
    first..first + end.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn shard(heads: u32, degree: u32, rank: u32) -> Shard {
        Shard::new(heads, degree, rank).unwrap()
    }

    #[test]
    fn shards_of_a_degree_divide_the_heads() {
        let of =
            |heads, degree| (0..degree).map(|rank| shard(heads, degree, rank).heads()).collect::<Vec<_>>();
        assert_eq!(of(8, 4), [0..2, 2..4, 4..6, 6..8]);
        assert_eq!(of(8, 3), [0..2, 2..5, 5..8], "degrees that do not divide");
        assert_eq!(of(2, 4), [0..1, 0..1, 1..2, 1..2], "replicated");
        assert_eq!(of(1, 3), [0..1, 0..1, 0..1], "MLA");
        assert!(Shard::new(8, 4, 4).is_err() && Shard::new(0, 1, 0).is_err() && Shard::new(1, 0, 0).is_err());
    }

    /// Each head of each rank comes from one rank that has it, for all degrees.
    #[test]
    fn shard_sources_cover_each_head_once() {
        for (heads, from, to) in
            (1..13).flat_map(|h| (1..13).flat_map(move |f| (1..13).map(move |t| (h, f, t))))
        {
            for rank in 0..to {
                let dst = shard(heads, to, rank);
                let mut next = 0;
                for (source, slice) in dst.sources(from) {
                    let Slice::Moved { src, dst: at, count } = slice else { panic!("a slice that moves") };
                    let has = shard(heads, from, source).heads();
                    assert_eq!(at, next, "in order");
                    assert_eq!(has.start + src, dst.heads().start + at, "the same head");
                    assert!(count > 0 && src + count <= has.end - has.start);
                    next += count;
                }
                assert_eq!(next, dst.heads().end - dst.heads().start, "{heads} heads, TP {from} to {to}");
            }
        }
    }

    #[test]
    fn shard_sources_use_all_replicas() {
        let asked: Vec<u32> =
            (0..4).flat_map(|rank| shard(1, 4, rank).sources(2)).map(|(rank, _)| rank).collect();
        assert_eq!(asked, [0, 1, 0, 1]);
        let slice = shard(8, 4, 1).slice_for(&shard(8, 8, 3));
        assert_eq!(slice, Some(Slice::Moved { src: 1, dst: 0, count: 1 }));
        assert_eq!(shard(8, 4, 1).slice_for(&shard(8, 8, 4)), None);
    }
}

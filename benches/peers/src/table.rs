//! The rows: each operation, the peer twice (as documented, and leanest) and ours, in turns.

use crate::kvbm::{self, Manager, Setup};
use crate::report::{Limit, Reach, Row, Unit};
use crate::tokens::Split;
use kvstrata_benches::floor::{ClaimFree, Leaf, Rmw, Touch};
use kvstrata_benches::rounds::{Effort, Samples, Spread, alone};
use kvstrata_benches::work::{Timed, Together};
use kvstrata_benches::{CAPACITY, TOKENS, ours};
use std::sync::atomic::AtomicU64;

/// Allocation and free of `n` blocks: the peer, ours.
pub fn allocate(effort: Effort, n: usize, reach: f64) -> Row {
    let [documented, leanest] = managers();
    let pool = ours::pool(CAPACITY);
    compare(
        effort,
        format!("allocate + free {n} block{}", if n == 1 { "" } else { "s" }),
        Reach::Faster(reach),
        [
            &mut kvbm::AllocateFree::new(&documented, n),
            &mut kvbm::AllocateFree::new(&leanest, n),
            &mut ours::AllocateFree::new(&pool, n),
        ],
    )
}

/// The same by two threads at once in one pool, against one thread.
pub fn two_threads(effort: Effort, n: usize, reach: f64) -> Row {
    let [documented, _] = managers();
    let pool = ours::pool(CAPACITY);
    let theirs = || kvbm::AllocateFree::new(&documented, n);
    let ours = || ours::AllocateFree::new(&pool, n);
    let (mut peer_one, mut peer_two) = (Together::new([theirs()]), Together::new([theirs(), theirs()]));
    let (mut one, mut two) = (Together::new([ours()]), Together::new([ours(), ours()]));
    let samples = Samples::take(effort, &mut [&mut one, &mut two, &mut peer_one, &mut peer_two]);
    let rate = |who, threads: usize| per_second(samples.time(who), (n * threads) as u64);
    let peer_scaling = samples.times(2, 3).median * 2.0;
    let scaling = samples.times(0, 1);
    Row {
        operation: format!(
            "the same ({n}) by 2 threads at once, in sum (the peer: {peer_scaling:.1}× its 1 thread)"
        ),
        unit: Unit::Mblocks,
        peer: rate(3, 2),
        leanest: None,
        ours: rate(1, 2),
        ratio: Spread { low: scaling.low * 2.0, median: scaling.median * 2.0, high: scaling.high * 2.0 },
        ratio_leanest: None,
        reach: Reach::Scaling(reach),
    }
}

/// A block's whole life, in a pool full of inactive blocks.
pub fn life_cycle(effort: Effort, reach: f64) -> Row {
    let [documented, leanest] = managers();
    let pool = ours::pool(CAPACITY);
    kvbm::fill(&documented);
    kvbm::fill(&leanest);
    ours::fill(&pool);
    compare(
        effort,
        "life cycle × 16".into(),
        Reach::Faster(reach),
        [
            &mut kvbm::LifeCycle::new(&documented),
            &mut kvbm::LifeCycle::new(&leanest),
            &mut ours::LifeCycle::new(&pool),
        ],
    )
}

/// A prefix matched and released, with or without another holder.
pub fn match_prefix(effort: Effort, active: bool, reach: f64) -> Row {
    let [documented, leanest] = managers();
    let pool = ours::pool(CAPACITY);
    let hashes = [kvbm::fill(&documented), kvbm::fill(&leanest)];
    let our_hashes = ours::fill(&pool);
    let name = if active { "active" } else { "inactive" };
    let theirs = if active { kvbm::MatchPrefix::active } else { kvbm::MatchPrefix::inactive };
    let ours = if active { ours::MatchPrefix::active } else { ours::MatchPrefix::inactive };
    compare(
        effort,
        format!("match a 128-block prefix, {name}, then release"),
        Reach::Faster(reach),
        [
            &mut theirs(&documented, &hashes[0]),
            &mut theirs(&leanest, &hashes[1]),
            &mut ours(&pool, &our_hashes),
        ],
    )
}

/// Tokens to blocks with chained hashes under an untuned malloc: one after the other, the peer first,
/// since a contender that keeps or frees large blocks tunes glibc's malloc for the next. To be called
/// before anything else is measured.
pub fn tokens_plain(effort: Effort) -> Row {
    let peer = alone(effort, &mut Split::default());
    let ours = alone(effort, &mut ours::Split::anew());
    let ratio =
        Spread { low: peer.low / ours.high, median: peer.median / ours.median, high: peer.high / ours.low };
    tokens_row("", "plain", [peer, ours], ratio, Reach::Nothing)
}

/// The same in turns, under a tuned malloc: a new sequence, and one that is cleared and filled
/// again, which the peer does not have.
pub fn tokens_tuned(effort: Effort, reach: f64) -> [Row; 2] {
    let (mut peer, mut anew, mut again) = (Split::default(), ours::Split::anew(), ours::Split::again());
    let samples = Samples::take(effort, &mut [&mut peer, &mut anew, &mut again]);
    let row = |note, ours, reach| {
        tokens_row(note, "tuned", [samples.time(0), samples.time(ours)], samples.times(0, ours), reach)
    };
    [row("", 1, Reach::Mtokens(reach)), row(", our sequence used again", 2, Reach::Nothing)]
}

fn tokens_row(note: &str, malloc: &str, times: [Spread; 2], ratio: Spread, reach: Reach) -> Row {
    let [peer, ours] = times.map(|time| per_second(time, TOKENS as u64));
    let operation = format!("131,072 tokens → 16-token blocks, chained hashes, {malloc} malloc{note}");
    Row { operation, unit: Unit::Mtokens, peer, leanest: None, ours, ratio, ratio_leanest: None, reach }
}

/// The limits of the machine.
pub fn limits(effort: Effort) -> Vec<Limit> {
    let (near, far, shared, counter) =
        (Leaf::default(), Leaf::default(), Leaf::default(), AtomicU64::new(1 << 20));
    let free = |leaf| ClaimFree { leaf, counter: None };
    let counted = |leaf| ClaimFree { leaf, counter: Some(&counter) };
    let limit = |what, work: &mut dyn Timed| Limit { what, time: alone(effort, work) };
    vec![
        limit("an uncontended atomic read-modify-write", &mut Rmw::default()),
        limit("claim a bit, write its slot, free it", &mut free(&near)),
        limit(
            "the same, 2 threads on words of their own, each",
            &mut Together::new([free(&near), free(&far)]),
        ),
        limit("the same, 2 threads on one word, each", &mut Together::new([free(&shared), free(&shared)])),
        limit("claim, write, free with a shared counter, 1 thread", &mut counted(&near)),
        limit(
            "the same, 2 threads on words of their own, each",
            &mut Together::new([counted(&near), counted(&far)]),
        ),
        limit(
            "take and drop a reference in 128 slots behind 128 buckets of 65,536",
            &mut Touch::new(CAPACITY),
        ),
    ]
}

fn managers() -> [Manager; 2] {
    [Setup::Documented, Setup::Leanest].map(|setup| kvbm::manager(setup, CAPACITY))
}

/// The contenders: the peer as documented, the peer at its leanest, ours.
fn compare(effort: Effort, operation: String, reach: Reach, contenders: [&mut dyn Timed; 3]) -> Row {
    let mut contenders = contenders;
    let samples = Samples::take(effort, &mut contenders);
    Row {
        operation,
        unit: Unit::Nanoseconds,
        peer: samples.time(0),
        leanest: Some(samples.time(1)),
        ours: samples.time(2),
        ratio: samples.times(0, 2),
        ratio_leanest: Some(samples.times(1, 2)),
        reach,
    }
}

/// Converts nanoseconds a run to millions of items a second.
fn per_second(run: Spread, items: u64) -> Spread {
    let rate = |ns: f64| items as f64 * 1000.0 / ns;
    Spread { low: rate(run.high), median: rate(run.median), high: rate(run.low) }
}

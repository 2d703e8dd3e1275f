//! ARC, 2Q and S3-FIFO by requests, against their papers, block by block: the same victims in the same order.
//!
//! A pool takes a request's victims at once. A request has blocks that are there and blocks that never
//! were; or it is one block, which may have a ghost. The papers' blocks come in the order of release. No
//! pool can evict the request's own blocks, so the papers' lists pass them by here.

use kvstrata_core::*;
use std::collections::{HashMap, VecDeque};

/// Capacity of the pools that are filled by hand.
const CAPACITY: usize = 400;

fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

/// Requests for a pool of `capacity` blocks; new numbers ascend. For 400 the longest exceeds a pool's batch.
fn requests(capacity: usize) -> Vec<Vec<u64>> {
    let of_400 = |blocks: u64| (blocks * capacity as u64).div_ceil(400);
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let mut next = 0;
    let mut new = |n: u64| {
        next += n;
        next - n..next
    };
    let mut requests: Vec<Vec<u64>> = (0..capacity as u64).map(|_| new(1).collect()).collect();
    for round in 0..32_000u64 {
        // Phases: many new; many back soon; many back late; popular ones, a few more than T2 has room for.
        let phase = (round / 2000 % 4) as usize;
        let (news, back) = [(150, 300), (8, 500), (3, 1100), (3, 350)][phase];
        let (news, back) = (of_400(news), of_400(back));
        let known = new(0).start;
        let old = |random: &mut dyn FnMut(u64) -> u64| known - 1 - random(back).min(random(back));
        if !round.is_multiple_of(12) {
            requests.push(match random(8) {
                0 if phase == 3 => new(1).collect(),
                1.. if phase == 3 => vec![random(of_400(420))],
                _ => vec![old(&mut random)],
            });
            continue;
        }
        let n = 1 + random(news);
        let mut request: Vec<u64> = new(n).collect();
        // Requested, but not brought if it is absent: see `Paper::serves`.
        (0..random(4)).for_each(|_| request.push(old(&mut random)));
        requests.push(request);
    }
    requests
}

/// A paper's lists, oldest first.
trait Paper {
    const CAPACITY: usize;

    fn has(&self, number: u64) -> bool;
    fn hit(&mut self, number: u64);
    /// Brings a block in. Returns the victim, which is none of `held`.
    fn miss(&mut self, number: u64, held: &[u64]) -> Option<u64>;

    /// Leaves absent old blocks out of longer requests: a pool learns of their ghosts later than the paper.
    fn serves(&self, request: &[u64]) -> Vec<u64> {
        let newest = request[0];
        let mut serves = request.to_vec();
        serves.retain(|number| request.len() == 1 || *number >= newest || self.has(*number));
        serves
    }
}

fn take(list: &mut VecDeque<u64>, number: u64) -> bool {
    list.iter().position(|other| *other == number).map(|at| list.remove(at)).is_some()
}

fn oldest(list: &mut VecDeque<u64>, held: &[u64]) -> Option<u64> {
    let at = list.iter().position(|number| !held.contains(number))?;
    list.remove(at)
}

#[derive(Default)]
struct Arc<const C: usize> {
    t1: VecDeque<u64>,
    t2: VecDeque<u64>,
    b1: VecDeque<u64>,
    b2: VecDeque<u64>,
    p: f64,
    /// How often it moved by more than 1: up, down.
    leaps: [u64; 2],
}

impl<const C: usize> Arc<C> {
    fn replace(&mut self, held: &[u64]) -> Option<u64> {
        // Sums of parts are not exact.
        if self.t1.len() as f64 > self.p + 1e-5
            && let Some(victim) = oldest(&mut self.t1, held)
        {
            self.b1.push_back(victim);
            return Some(victim);
        }
        if let Some(victim) = oldest(&mut self.t2, held) {
            self.b2.push_back(victim);
            return Some(victim);
        }
        let victim = oldest(&mut self.t1, held)?;
        self.b1.push_back(victim);
        Some(victim)
    }
}

impl<const C: usize> Paper for Arc<C> {
    const CAPACITY: usize = C;

    fn has(&self, number: u64) -> bool {
        self.t1.contains(&number) || self.t2.contains(&number)
    }

    fn hit(&mut self, number: u64) {
        assert!(take(&mut self.t1, number) || take(&mut self.t2, number));
        self.t2.push_back(number);
    }

    fn miss(&mut self, number: u64, held: &[u64]) -> Option<u64> {
        let of_b1 = self.b1.contains(&number);
        if of_b1 || self.b2.contains(&number) {
            // The pool takes the victim before it knows the new block: `p` moves after the victim.
            let victim = self.replace(held);
            let [b1, b2] = [&self.b1, &self.b2].map(|ghosts| ghosts.len() as f64);
            let (more, by) = if of_b1 { (0, (b2 / b1).max(1.0)) } else { (1, (b1 / b2).max(1.0)) };
            self.leaps[more] += u64::from(by.fract() > 0.0);
            self.p = if of_b1 { (self.p + by).min(C as f64) } else { (self.p - by).max(0.0) };
            assert!(take(&mut self.b1, number) || take(&mut self.b2, number));
            self.t2.push_back(number);
            return victim;
        }
        let (l1, here) = (self.t1.len() + self.b1.len(), self.t1.len() + self.t2.len());
        let all = here + self.b1.len() + self.b2.len();
        let mut victim = None;
        if l1 == C {
            if self.t1.len() < C {
                self.b1.pop_front();
                victim = self.replace(held);
            } else {
                victim = oldest(&mut self.t1, held);
            }
        } else if all >= C {
            if all == 2 * C {
                self.b2.pop_front();
            }
            victim = self.replace(held);
        }
        self.t1.push_back(number);
        assert_eq!(self.t1.len() + self.t2.len(), (here + 1).min(C));
        victim
    }
}

#[derive(Default)]
struct TwoQ<const C: usize> {
    a1in: VecDeque<u64>,
    am: VecDeque<u64>,
    a1out: VecDeque<u64>,
    back: u64,
}

impl<const C: usize> Paper for TwoQ<C> {
    const CAPACITY: usize = C;

    fn has(&self, number: u64) -> bool {
        self.a1in.contains(&number) || self.am.contains(&number)
    }

    fn hit(&mut self, number: u64) {
        if take(&mut self.am, number) {
            self.am.push_back(number);
        }
    }

    fn miss(&mut self, number: u64, held: &[u64]) -> Option<u64> {
        let again = take(&mut self.a1out, number);
        let mut victim = None;
        if self.a1in.len() + self.am.len() == C {
            if self.a1in.len() > C / 4 {
                victim = oldest(&mut self.a1in, held);
            }
            if victim.is_none() {
                victim = oldest(&mut self.am, held);
            } else {
                self.a1out.extend(victim);
                if self.a1out.len() > C / 2 {
                    self.a1out.pop_front();
                }
            }
        }
        self.back += u64::from(again);
        if again { &mut self.am } else { &mut self.a1in }.push_back(number);
        victim
    }
}

#[derive(Default)]
struct S3Fifo<const C: usize> {
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    heat: HashMap<u64, u8>,
    ghosts: VecDeque<u64>,
    /// Blocks that went from small to main, and that came back while they had ghosts.
    promoted: u64,
    back: u64,
}

impl<const C: usize> S3Fifo<C> {
    fn of_small(&mut self, held: &[u64]) -> Option<u64> {
        loop {
            let first = oldest(&mut self.small, held)?;
            if self.heat[&first] <= 1 {
                self.ghosts.push_back(first);
                if self.ghosts.len() > C * 9 / 10 {
                    self.ghosts.pop_front();
                }
                return Some(first);
            }
            self.promoted += 1;
            self.heat.insert(first, 0);
            self.main.push_back(first);
        }
    }

    fn of_main(&mut self, held: &[u64]) -> Option<u64> {
        loop {
            let first = oldest(&mut self.main, held)?;
            match self.heat.get_mut(&first).expect("it is there") {
                0 => return Some(first),
                heat => *heat -= 1,
            }
            self.main.push_back(first);
        }
    }
}

impl<const C: usize> Paper for S3Fifo<C> {
    const CAPACITY: usize = C;

    fn has(&self, number: u64) -> bool {
        self.heat.contains_key(&number)
    }

    fn hit(&mut self, number: u64) {
        let heat = self.heat.get_mut(&number).expect("it is there");
        *heat = (*heat + 1).min(3);
    }

    fn miss(&mut self, number: u64, held: &[u64]) -> Option<u64> {
        let mut victim = None;
        if self.heat.len() == C {
            if self.small.len() >= (C / 10).max(1) {
                victim = self.of_small(held);
            }
            let victim = victim.get_or_insert_with(|| {
                let of_main = self.of_main(held).or_else(|| self.of_small(held));
                of_main.or_else(|| self.of_main(held)).expect("not all are held")
            });
            self.heat.remove(victim);
        }
        let ghost = self.ghosts.iter().position(|other| *other == number);
        let again = ghost.and_then(|at| self.ghosts.remove(at)).is_some();
        self.back += u64::from(again);
        if again { &mut self.main } else { &mut self.small }.push_back(number);
        self.heat.insert(number, 0);
        victim
    }
}

/// Runs requests over a pool and over the paper. Returns the paper, and the number of evictions.
fn compare<P: Paper + Default>(policy: Policy, requests: &[Vec<u64>]) -> (P, usize) {
    let config = PoolConfig::new(P::CAPACITY as u32).policy(policy).lanes(1).lane_of(|| 0);
    let pool = BlockPool::new(config).expect("a valid setup");
    let mut numbers = HashMap::new();
    let (mut paper, mut all) = (P::default(), 0);
    for (nth, request) in requests.iter().enumerate() {
        let request = paper.serves(request);
        numbers.extend(request.iter().map(|number| (hash(*number), *number)));
        let (there, new): (Vec<u64>, Vec<u64>) = request.iter().partition(|number| paper.has(**number));
        let mut held = there.clone();
        let mut expected = vec![];
        for number in &new {
            expected.extend(paper.miss(*number, &held));
            held.push(*number);
        }
        there.iter().for_each(|number| paper.hit(*number));

        let there: Vec<_> =
            there.iter().map(|number| pool.lookup(hash(*number)).expect("it is there")).collect();
        let (mut victims, mut blocks) = (vec![], vec![]);
        pool.evict(new.len().saturating_sub(pool.free()), &mut victims);
        let victims: Vec<u64> = victims.drain(..).map(|victim| numbers[&victim.hash()]).collect();
        assert_eq!(victims, expected, "{policy}, request {nth} of {} blocks", new.len());
        all += victims.len();
        pool.allocate(new.len(), &mut blocks).expect("as many were evicted");
        let complete = blocks.drain(..).zip(&new).map(|(block, number)| block.complete(hash(*number)));
        let new =
            complete.map(|block| pool.register(block.expect("a new block is Reset"), None).into_block());
        let new: Vec<_> = new.collect();
        pool.release(new.into_iter().chain(there));
    }
    (paper, all)
}

/// As `compare`, for the requests of this capacity; they evict.
fn compare_all<P: Paper + Default>(policy: Policy) -> P {
    let (paper, evicted) = compare::<P>(policy, &requests(P::CAPACITY));
    assert!(evicted > 10_000, "{evicted} were evicted");
    paper
}

#[test]
fn arc_victims_match_the_paper() {
    let paper = compare_all::<Arc<400>>(Policy::Arc);
    assert!(paper.leaps.iter().all(|leaps| *leaps > 100), "p moves by parts of blocks: {:?}", paper.leaps);
    // No tenth, no quarter and no word of a bitmap divides these.
    let _ = (compare_all::<Arc<37>>(Policy::Arc), compare_all::<Arc<643>>(Policy::Arc));
}

#[test]
fn two_q_victims_match_the_paper() {
    let paper = compare_all::<TwoQ<400>>(Policy::TwoQ);
    assert!(paper.back > 1000, "{} came back", paper.back);
    let _ = (compare_all::<TwoQ<37>>(Policy::TwoQ), compare_all::<TwoQ<643>>(Policy::TwoQ));
}

#[test]
fn s3fifo_victims_match_the_paper() {
    let paper = compare_all::<S3Fifo<400>>(Policy::S3Fifo);
    assert!(paper.promoted > 500, "{} went to main", paper.promoted);
    assert!(paper.back > 1000, "{} came back", paper.back);
    let _ = (compare_all::<S3Fifo<37>>(Policy::S3Fifo), compare_all::<S3Fifo<643>>(Policy::S3Fifo));
}

/// B1 grows by more than a batch, T1 does not, all lists are full: B2 gives room; B1's oldest are met later.
#[test]
fn arc_ghosts_of_a_long_request_take_the_room_of_the_paper() {
    let one = |numbers: std::ops::Range<u64>| numbers.map(|number| vec![number]);
    let new = |numbers: std::ops::Range<u64>| [numbers.collect()];
    // All are proven; 299 ghosts in B1; 250 of them come back: p is 250. Then T1 is filled up to that.
    let before = one(0..400).chain(one(0..400)).chain(one(400..700)).chain(one(449..699));
    let before = before.chain(new(700..850)).chain(new(850..950));
    let requests = before.chain(new(950..1045)).chain(one(400..449)).chain(one(1045..1445));
    let (paper, _) = compare::<Arc<CAPACITY>>(Policy::Arc, &requests.collect::<Vec<_>>());
    assert!(paper.p > 290.0, "those ghosts were there: {}", paper.p);

    // T1 is empty, B1 has 150 ghosts, B2 250, p is at least 250: T2's victims leave B1 just its room.
    let before =
        one(0..400).chain(one(0..400)).chain(one(400..800)).chain(one(549..799)).chain(new(800..1050));
    let requests = before.chain(one(400..402)).chain(one(1050..1450));
    let (paper, _) = compare::<Arc<CAPACITY>>(Policy::Arc, &requests.collect::<Vec<_>>());
    assert!(paper.t2.len() < CAPACITY && paper.p >= 250.0, "p is {}", paper.p);
}

/// Kout grows by the blocks still to come: a request's last ones meet the same ghosts as if each came alone.
#[test]
fn two_q_last_blocks_of_a_request_meet_their_ghosts() {
    let pool = BlockPool::new(PoolConfig::new(8).policy(Policy::TwoQ)).expect("a valid setup");
    let bring = |numbers: &[u64]| {
        let mut blocks = vec![];
        pool.allocate(numbers.len(), &mut blocks).expect("there is room");
        let complete = blocks.drain(..).zip(numbers).map(|(block, number)| block.complete(hash(*number)));
        let held =
            complete.map(|block| pool.register(block.expect("a new block is Reset"), None).into_block());
        pool.release(held.collect::<Vec<_>>());
    };
    (1..13).for_each(|number| bring(&[number]));
    // 1 to 4 have ghosts, and Kout is 4: the first of these drops the ghost of 1.
    bring(&[13, 2, 3, 4]);
    bring(&[14]);
    let mut next = vec![];
    pool.next_victims(8, &mut next);
    let next: Vec<SequenceHash> = next.into_iter().map(|(_, hash)| hash).collect();
    assert_eq!(next, [10, 11, 12, 13, 14, 2, 3, 4].map(hash), "three are proven, and the last to go");
}

/// A full pool: for each class, a number of blocks on trial, and a number of proven ones.
fn filled(policy: Policy, classes: &[(Priority, u64, u64)]) -> BlockPool {
    let all: u64 = classes.iter().map(|(_, trial, proven)| trial + proven).sum();
    let pool = BlockPool::new(PoolConfig::new(all as u32).policy(policy)).expect("a valid setup");
    let store = |number: u64, class: Priority| {
        let mut blocks = vec![];
        pool.allocate(1, &mut blocks).expect("there is room");
        let complete = blocks.remove(0).complete(hash(number)).expect("a new block is Reset");
        let block = pool.register(complete, None).into_block();
        block.set_priority(class);
        block
    };
    let (mut held, mut next) = (vec![], 0..all);
    for (class, trial, proven) in classes {
        held.extend(next.by_ref().take(*proven as usize).map(|number| {
            drop(store(number, Priority::Pinned));
            let block = pool.lookup(hash(number)).expect("it is pinned");
            block.set_priority(*class);
            if policy != Policy::S3Fifo {
                // Any pinned block is proven.
                return block;
            }
            // Or a block that comes back: all others are held. To hold it again is no use.
            drop(block);
            assert_eq!(pool.evict(1, &mut vec![]), 1);
            let back = store(number, *class).downgrade();
            pool.upgrade(back).expect("it is there")
        }));
        held.extend(next.by_ref().take(*trial as usize).map(|number| store(number, *class)));
    }
    drop(held);
    pool
}

/// A pinned block that comes back loses its ghost: if it leaves without one, it is new the next time.
#[test]
fn two_q_block_pinned_on_return_loses_its_ghost() {
    let pool = BlockPool::new(PoolConfig::new(8).policy(Policy::TwoQ)).expect("a valid setup");
    let bring = |number: u64, class: Priority| {
        let mut blocks = vec![];
        pool.allocate(1, &mut blocks).expect("there is room");
        let complete = blocks.remove(0).complete(hash(number)).expect("a new block is Reset");
        pool.register(complete, None).into_block().set_priority(class);
    };
    // 1 to 4 then have ghosts, and proven blocks leave none.
    (1..13).for_each(|number| bring(number, Priority::Normal));
    bring(4, Priority::Pinned);
    pool.lookup(hash(4)).expect("it is pinned").set_priority(Priority::Normal);
    assert_eq!(pool.evict(8, &mut vec![]), 8);
    bring(13, Priority::Normal);
    bring(4, Priority::Normal);
    let mut next = vec![];
    pool.next_victims(2, &mut next);
    let next: Vec<SequenceHash> = next.into_iter().map(|(_, hash)| hash).collect();
    assert_eq!(next, [13, 4].map(hash), "a proven one would be the first to go");
}

/// The free blocks of an allocation count as given, and come to the trial too. So with its victims, or
/// in consecutive calls by number, as many proven blocks leave as are in excess.
#[test]
fn two_q_free_blocks_count_as_given() {
    let left = |take: &dyn Fn(&BlockPool)| {
        // 10 of 25 are on trial, so that the first 16 to go are proven.
        let pool = filled(Policy::TwoQ, &[(Priority::Normal, 10, 90)]);
        assert_eq!(pool.evict(5, &mut vec![]), 5);
        take(&pool);
        let there =
            |numbers: std::ops::Range<u64>| numbers.filter(|number| pool.contains(hash(*number))).count();
        (there(0..90), there(90..100))
    };
    let expected = (90 - 5 - 11, 5);
    let handles = |pool: &BlockPool| {
        let mut blocks = vec![];
        pool.allocate(5 + 16, &mut blocks).expect("there is room");
    };
    assert_eq!(left(&handles), expected);
    let numbers = |pool: &BlockPool| {
        let mut victims = vec![];
        pool.evict_ids_behind(6, 5, &mut victims);
        pool.evict_ids_behind(10, 11, &mut victims);
    };
    assert_eq!(left(&numbers), expected);
}

/// Each class gives its turn's blocks, and no more than the earlier classes have left of the excess.
#[test]
fn look_by_classes_matches_the_order_of_eviction() {
    for policy in [Policy::TwoQ, Policy::Arc, Policy::S3Fifo] {
        for classes in [
            [(Priority::Low, 5, 20), (Priority::Normal, 5, 70)],
            [(Priority::Low, 40, 0), (Priority::Normal, 40, 20)],
            [(Priority::Low, 2, 5), (Priority::Normal, 3, 90)],
            [(Priority::Low, 3, 2), (Priority::Normal, 2, 93)],
        ] {
            let pool = filled(policy, &classes);
            let mut next = vec![];
            pool.next_victims(100, &mut next);
            let next: Vec<SequenceHash> = next.into_iter().map(|(_, hash)| hash).collect();
            let mut victims = vec![];
            pool.evict(100, &mut victims);
            let victims: Vec<SequenceHash> = victims.iter().map(EvictedBlock::hash).collect();
            assert_eq!(next, victims, "{policy}: {classes:?}");
        }
    }
}

/// Pinned blocks take no part in the trial: Kin counts the others.
#[test]
fn two_q_pinned_blocks_are_not_on_trial() {
    let pool = filled(Policy::TwoQ, &[(Priority::Pinned, 0, 40), (Priority::Normal, 20, 40)]);
    let mut next = vec![];
    pool.next_victims(60, &mut next);
    // 20 are on trial, of 25 allowed: six proven go first, stored from the 40th on; on trial from the 80th.
    let order: Vec<u64> = (40..46).chain(80..100).chain(46..80).collect();
    let next: Vec<SequenceHash> = next.into_iter().map(|(_, hash)| hash).collect();
    assert_eq!(next, order.into_iter().map(hash).collect::<Vec<_>>());
}

//! The table of states, row by row, the refused rows too. Transitions that the typestate handles make
//! unrepresentable are tried through an FFI caller's numbers.

use kvstrata_core::*;

const PAGE: u32 = 4;

fn hash(number: u128) -> SequenceHash {
    SequenceHash::from_u128(number << 64 | number)
}

fn pool(policy: Policy) -> BlockPool {
    BlockPool::new(PoolConfig::new(4).policy(policy).page_size(PAGE)).expect("a valid setup")
}

fn one(pool: &BlockPool) -> MutableBlock<'_> {
    let mut out = vec![];
    pool.allocate(1, &mut out).expect("a block is free");
    out.pop().expect("one")
}

fn complete(pool: &BlockPool, number: u128) -> CompleteBlock<'_> {
    one(pool).complete(hash(number)).expect("a new block is Reset")
}

/// The table itself: every pair of states.
#[test]
fn transitions_match_the_table_for_every_pair() {
    use State::*;
    let allowed = [
        (Reset, Partial),
        (Partial, Partial),
        (Partial, Complete),
        (Partial, Reset),
        (Complete, Registered),
        (Complete, Reset),
        (Registered, Reset),
    ];
    for from in [Reset, Partial, Complete, Registered] {
        for to in [Reset, Partial, Complete, Registered] {
            assert_eq!(from.allows(to), allowed.contains(&(from, to)), "{from} → {to}");
        }
    }
}

/// Reset → Partial by `init_sequence`; refused: the block is in use.
#[test]
fn reset_block_becomes_partial_by_init_sequence() {
    let pool = pool(Policy::Lru);
    let mut block = one(&pool);
    assert_eq!(block.state(), State::Reset);
    block.init_sequence(Salt::default()).expect("it is Reset");
    assert_eq!((block.state(), block.filled()), (State::Partial, 0));
    let refused = block.init_sequence(Salt::default()).expect_err("it is in use");
    assert_eq!(
        (refused.block, refused.state, refused.reason),
        (block.id(), State::Partial, Reason::Needs(State::Reset))
    );
    assert_eq!(refused.to_string(), format!("{} is Partial: this needs a block that is Reset", block.id()));
}

/// Partial → Partial by `add_token` and `add_tokens`; refused: more than the page has
/// room for, or not Partial.
#[test]
fn partial_block_stays_partial_by_add_tokens() {
    let pool = pool(Policy::Lru);
    let mut block = one(&pool);
    assert_eq!(block.add_token().expect_err("it is Reset").reason, Reason::Needs(State::Partial));
    block.init_sequence(Salt::default()).expect("it is Reset");
    block.add_token().expect("room for four");
    block.add_tokens(2).expect("room for three");
    let refused = block.add_tokens(2).expect_err("room for one");
    assert_eq!(refused.reason, Reason::PageOverflow { filled: 3, added: 2, page_size: PAGE });
    assert!(block.add_tokens(u32::MAX).is_err(), "no overflow");
    assert_eq!(block.filled(), 3, "a refusal adds nothing");
    block.add_tokens(1).expect("room for one");
    assert_eq!(block.filled(), PAGE);
}

/// Partial → Complete by `commit`; refused: the page is not full, or the block is not
/// Partial; the block comes back.
#[test]
fn partial_block_becomes_complete_by_commit() {
    let pool = pool(Policy::Lru);
    let refused = one(&pool).commit(hash(1)).expect_err("it is Reset");
    assert_eq!(refused.error.reason, Reason::Needs(State::Partial));
    let mut block = refused.block;
    block.init_sequence(Salt::default()).expect("it came back as it was");
    block.add_tokens(PAGE - 1).expect("room for four");
    let refused = block.commit(hash(1)).expect_err("one token is missing");
    assert_eq!(refused.error.reason, Reason::PageNotFull { filled: PAGE - 1, page_size: PAGE });
    let mut block = refused.block;
    block.add_token().expect("room for one");
    let complete = block.commit(hash(1)).expect("the page is full");
    assert_eq!(complete.hash(), hash(1));
    // The whole page at once is refused once there is part of a page.
    let mut block = one(&pool);
    block.init_sequence(Salt::default()).expect("it is Reset");
    assert_eq!(block.complete(hash(2)).expect_err("it is Partial").error.reason, Reason::Needs(State::Reset));
}

/// Complete → Registered by `register`; an equal hash: the caller's copy gives way, and is free again.
#[test]
fn complete_block_becomes_registered_by_register() {
    let pool = pool(Policy::Lru);
    let Registered::New(first) = pool.register(complete(&pool, 1), None) else { panic!("the hash is new") };
    let Registered::Deduplicated(second) = pool.register(complete(&pool, 1), None) else {
        panic!("the hash is there")
    };
    assert_eq!((first.id(), first.references()), (second.id(), 2));
    assert_eq!((pool.free(), pool.stats().deduplicated), (3, 1));
    // With `Keep`, both stay.
    let keep = BlockPool::new(PoolConfig::new(4).duplicates(Duplicates::Keep)).expect("a valid setup");
    let first = keep.register(complete(&keep, 1), None).into_block();
    let Registered::New(second) = keep.register(complete(&keep, 1), None) else {
        panic!("duplicates are kept")
    };
    assert_ne!(first.id(), second.id());
}

/// Partial, Complete → Reset by `reset` or by dropping the handle: never refused, and weak references die.
#[test]
fn partial_and_complete_blocks_become_reset_by_reset_or_drop() {
    let pool = pool(Policy::Lru);
    let mut block = one(&pool);
    block.init_sequence(Salt::default()).expect("it is Reset");
    block.reset();
    assert_eq!(block.state(), State::Reset);
    block.init_sequence(Salt::default()).expect("it is Reset again");
    drop(block);
    let block = complete(&pool, 1).reset();
    assert_eq!(block.state(), State::Reset);
    drop(block);
    drop(complete(&pool, 2));
    assert_eq!((pool.free(), pool.census().free), (4, 4));
}

/// Registered → Reset by eviction, withdrawal and the last `RegistrationHandle`; refused: it is referenced.
#[test]
fn registered_block_becomes_reset_by_eviction_or_withdrawal() {
    for policy in Policy::ALL {
        let pool = pool(policy);
        let block = pool.register(complete(&pool, 1), None).into_block();
        let weak = block.downgrade();
        assert_eq!(pool.evict(4, &mut vec![]), 0, "a referenced block is not evicted");
        let refused = pool.unregister(weak).expect_err("it is referenced");
        assert_eq!(
            (refused.state, refused.reason),
            (State::Registered, Reason::Referenced { references: 1 })
        );
        drop(block);
        assert_eq!(pool.inactive(), 1);
        let mut victims = vec![];
        assert_eq!(pool.evict(4, &mut victims), 1, "{policy}");
        assert_eq!(victims[0].hash(), hash(1));
        assert!(pool.upgrade(weak).is_none() && !pool.contains(hash(1)), "recycled");
        assert_eq!(pool.unregister(weak).expect_err("it is gone").reason, Reason::Recycled);
        drop(victims);

        let (registered, handle) = pool.register_scoped(complete(&pool, 2), None);
        let block = registered.into_block();
        drop(handle);
        assert!(pool.lookup(hash(2)).is_none(), "a withdrawn block is not found");
        assert_eq!(block.hash(), hash(2), "but who holds it has it");
        drop(block);
        assert_eq!(pool.census().free, 4, "{policy}: gone with the last reference");
        let (registered, handle) = pool.register_scoped(complete(&pool, 3), None);
        drop(registered);
        drop(handle);
        assert_eq!(pool.census().free, 4, "{policy}: gone with the handle");
    }
}

/// The last of several `RegistrationHandle`s ends the registration; if one was made
/// without a scope, none ends it.
#[test]
fn registration_ends_with_its_last_scope() {
    for policy in Policy::ALL {
        let pool = pool(policy);
        let scoped = |n| {
            let (registered, handle) = pool.register_scoped(complete(&pool, n), None);
            (matches!(registered, Registered::New(_)), handle)
        };
        let (new, first) = scoped(1);
        let (again, second) = scoped(1);
        assert!(new && !again);
        drop(first);
        assert!(pool.contains(hash(1)), "{policy}: another scope has it");
        drop(second);
        assert_eq!(pool.census().free, 4, "{policy}: gone with the last");

        let (_, handle) = scoped(2);
        drop(pool.register(complete(&pool, 2), None));
        drop(handle);
        assert!(pool.contains(hash(2)), "{policy}: registered without a scope meanwhile");
        let (new, handle) = scoped(2);
        drop(handle);
        assert!(!new && pool.contains(hash(2)), "{policy}: registered without a scope before");

        let (_, handle) = scoped(3);
        assert_eq!(pool.evict(2, &mut vec![]), 2, "{policy}");
        let (new, _other) = scoped(3);
        drop(handle);
        assert!(new && pool.contains(hash(3)), "{policy}: the handle was of a registration that was evicted");
    }
}

/// An FFI caller's mistakes are refused by name.
#[test]
fn block_numbers_out_of_place_are_refused_by_name() {
    let pool = pool(Policy::Lru);
    let out_of_range = pool.adopt_mutable(BlockId(4)).expect_err("there are four");
    assert_eq!(out_of_range.reason, Reason::OutOfRange { capacity: 4 });
    assert!(pool.adopt_mutable(BlockId(0)).is_err(), "it is free");
    let unused = BlockRef { id: BlockId(0), generation: 0 };
    assert!(pool.adopt_immutable(unused).is_err(), "it is not registered");
    let id = one(&pool).into_id();
    drop(pool.adopt_mutable(id).expect("it is owned by number"));
    let held = pool.register(complete(&pool, 1), None).into_block().into_ref();
    assert!(pool.adopt_mutable(held.id).is_err(), "it is registered");
    let older = BlockRef { generation: held.generation.wrapping_sub(1), ..held };
    assert_eq!(pool.adopt_immutable(older).expect_err("an earlier registration").reason, Reason::Recycled);
    drop(pool.adopt_immutable(held).expect("it is referenced by number"));
    assert!(pool.adopt_immutable(held).is_err(), "nobody references it");
    assert_eq!(pool.free() + pool.inactive(), 4);
}

/// A setting out of range is named.
#[test]
fn settings_out_of_range_are_refused_by_name() {
    let refuse = |config: PoolConfig| BlockPool::new(config).map(drop).expect_err("out of range").to_string();
    assert_eq!(refuse(PoolConfig::new(0)), "capacity = 0: must be from 1 to 268,435,456 blocks");
    assert_eq!(
        refuse(PoolConfig::new(1).page_size(70_000)),
        "page_size = 70000: must be from 1 to 65,535 tokens"
    );
    assert_eq!(refuse(PoolConfig::new(1).lanes(17)), "lanes = 17: must be from 1 to 16");
}

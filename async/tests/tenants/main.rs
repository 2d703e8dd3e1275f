//! Tenants of one manager: they share nothing, each has its quotas, and a purge leaves nothing of one.

mod beyond;
mod circle;
#[path = "../common/mod.rs"]
mod common;
mod edges;
mod forged;
#[expect(dead_code, reason = "this test uses some of it")]
mod gated;
#[expect(dead_code, reason = "this test uses some of it")]
#[path = "../manager/ground.rs"]
mod ground;
mod kept;
mod left;
mod names;
mod proof;
mod purge;
mod quota;
mod restart;
#[path = "../common/sim/mod.rs"]
mod sim;
#[path = "../common/tokio_time.rs"]
mod time;

use kvstrata::manager::Tiers;
use kvstrata_core::{SequenceHash, TokenBlockSequence};

/// The hashes of a sequence of so many blocks, with the tenant's salt; `number` tells sequences apart.
fn sequence(tenant: &Tiers, number: u32, blocks: u32) -> Vec<SequenceHash> {
    let salt = tenant.salt("model", "", &[]);
    let mut tokens = TokenBlockSequence::new(2, salt, tenant.hasher().clone()).expect("not zero");
    tokens.extend(&(0..2 * blocks).map(|token| number << 16 | token).collect::<Vec<_>>());
    tokens.hashes().to_vec()
}

#[tokio::test]
async fn tenants_with_equal_tokens_share_nothing() {
    let manager = ground::build(ground::settings(16, 16));
    let [a, b] = ["a", "b"].map(|name| manager.tenant(name).expect("few tenants"));
    let group = a.default_group();
    let (of_a, of_b) = (sequence(&a, 1, 4), sequence(&b, 1, 4));
    drop(ground::compute(&a, &of_a, None).await);
    assert_eq!(group.match_prefix(&of_a).len(), 4);
    assert_eq!((b.default_group().match_prefix(&of_b).len(), group.match_prefix(&of_b).len()), (0, 0));
    drop(ground::compute(&b, &of_b, None).await);
    let (held_a, held_b) = (group.match_device(&of_a), b.default_group().match_device(&of_b));
    assert_eq!((held_a.len(), held_b.len()), (4, 4));
    assert!(held_a.ids().all(|block| held_b.ids().all(|other| block != other)));
    ground::check(&a, &held_a, &of_a);
    ground::check(&b, &held_b, &of_b);
}

//! A tenant chooses tokens for another tenant's hash: under XXH3 it is served that tenant's
//! block, and by default nothing.

use super::ground;
use kvstrata::config::HashFunction;
use kvstrata::manager::{KvBlockManager, Tiers};
use kvstrata_core::Salt;
use kvstrata_testing::forge::forge_tokens;

fn manager(function: HashFunction) -> KvBlockManager {
    ground::build(ground::settings(16, 16).geometry_page_size(16).hash_function(function))
}

/// The victim registers a block. The attacker knows its hash, and asks for it by tokens under a salt of
/// her own. Returns whether the tokens found the block; `None`: no such tokens exist.
async fn attack(manager: &Tiers) -> Option<bool> {
    let [victim, attacker] = ["victim", "attacker"].map(|name| manager.tenant(name).expect("few tenants"));
    let secret: Vec<u32> = (0..16).map(|token| token * 31 + 5).collect();
    let hashes = victim.default_group().hashes_of(&secret, victim.salt("model", "", &[]));
    drop(ground::compute(&victim, &hashes, None).await);
    assert_eq!(victim.default_group().match_prefix(&hashes).len(), 1);

    let own: Salt = attacker.salt("model", "", &[]);
    let forged = forge_tokens(own.to_hash().to_u128(), hashes[0].to_u128())?;
    Some(!attacker.default_group().match_prefix(&attacker.default_group().hashes_of(&forged, own)).is_empty())
}

#[tokio::test]
async fn forged_tokens_find_nothing_by_default() {
    // XXH3 cannot make every hash. Of twelve managers, each with its secret, some are attacked.
    let mut attacked = 0;
    for _ in 0..12 {
        let found = attack(&manager(HashFunction::Keyed)).await;
        assert_ne!(found, Some(true), "the attacker was served the victim's block");
        attacked += usize::from(found.is_some());
    }
    assert!(attacked > 0, "no attack was possible, so nothing was shown");
}

/// The control: without a secret the attack works, so the test above can fail.
#[tokio::test]
async fn forged_tokens_find_the_victims_block_under_xxh3() {
    assert_eq!(attack(&manager(HashFunction::Xxh3)).await, Some(true));
}

#[tokio::test]
async fn registering_first_poisons_nothing_by_default() {
    assert!(!is_poisoned(HashFunction::Keyed).await);
}

/// The control.
#[tokio::test]
async fn registering_first_poisons_the_victim_under_xxh3() {
    assert!(is_poisoned(HashFunction::Xxh3).await);
}

/// The attacker has to know the victim's hash before the victim asks: she makes it by the public
/// function without a secret. Returns whether the victim is served the attacker's block.
async fn is_poisoned(function: HashFunction) -> bool {
    let manager = manager(function);
    let [victim, attacker] = ["victim", "attacker"].map(|name| manager.tenant(name).expect("few tenants"));
    let prompt: Vec<u32> = (0..16).collect();
    let parts = kvstrata_core::SaltParts { tenant: "victim", model: "model", lora: "", extra: &[] };
    let salt = parts.salt(&kvstrata_core::Xxh3);
    let made = kvstrata_core::hash::BlockHasher::sequence_hash(&kvstrata_core::Xxh3, salt.to_hash(), &prompt);
    drop(ground::compute(&attacker, &[made], None).await);
    let hashes = victim.default_group().hashes_of(&prompt, victim.salt("model", "", &[]));
    !victim.default_group().match_prefix(&hashes).is_empty()
}

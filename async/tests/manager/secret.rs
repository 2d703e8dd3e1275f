//! The secret of the block hashes over restarts: it is kept beside the volumes and found again, and a
//! volume with another secret is refused.

use super::ground;
use kvstrata::config::DiskFill;
use kvstrata::config::{HashFunction, ManagerConfigBuilder};
use kvstrata::manager::KvBlockManager;
use kvstrata_core::Salt;
use std::path::Path;

fn settings(folder: &Path) -> ManagerConfigBuilder {
    let settings = ground::settings(8, 8).disk_blocks(16).disk_paths(vec![folder.to_owned()]);
    settings.disk_fill(DiskFill::No)
}

fn refusal(settings: ManagerConfigBuilder) -> String {
    let config = settings.build().expect("a configuration");
    KvBlockManager::open(&config).expect_err("refused").to_string()
}

#[tokio::test]
async fn restart_finds_blocks_by_their_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens: Vec<u32> = (0..64).collect();
    let mut named = Vec::new();
    for _ in 0..2 {
        let manager = ground::build(settings(folder.path()));
        let group = manager.default_group();
        let hashes = group.hashes_of(&tokens, manager.salt("m", "", &[]));
        assert!(manager.describe().contains("block hashes: keyed ("), "{}", manager.describe());
        if named.is_empty() {
            drop(ground::compute(&manager, &hashes, None).await);
            assert_eq!(group.persist(&hashes).await.copied, 4);
        } else {
            assert_eq!((&hashes, group.match_prefix(&hashes).len()), (&named, 4));
        }
        named = hashes;
        assert!(manager.shutdown().await);
    }
}

#[tokio::test]
async fn volume_of_another_secret_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(ground::build(settings(folder.path())).shutdown().await);
    let other = settings(folder.path()).hash_function(HashFunction::Xxh3);
    let refused = refusal(other);
    assert!(refused.contains("its hash secret is") && refused.contains("hash.function"), "{refused}");

    let file = folder.path().join("kvstrata.hash-key");
    std::fs::rename(&file, folder.path().join("lost")).expect("moved");
    let refused = refusal(settings(folder.path()));
    assert!(refused.contains("its hash secret is") && refused.contains("hash.key_file"), "{refused}");
    std::fs::rename(folder.path().join("lost"), &file).expect("moved back");
    assert!(ground::build(settings(folder.path())).shutdown().await, "and it serves again with its own");

    // A volume of another model is still refused as such.
    let refused = refusal(settings(folder.path()).disk_weights(Some("other".to_owned())));
    assert!(refused.contains("its model_fingerprint is"), "{refused}");
}

#[tokio::test]
async fn sequences_hash_as_the_manager_does() {
    let manager = ground::build(ground::settings(8, 8));
    let tokens: Vec<u32> = (0..100).collect();
    let mut sequence = manager.default_group().sequence(Salt::default());
    sequence.extend(&tokens);
    assert_eq!(sequence.hashes(), manager.default_group().hashes_of(&tokens, Salt::default()));
    let other = ground::build(ground::settings(8, 8));
    assert_ne!(
        sequence.hashes(),
        other.default_group().hashes_of(&tokens, Salt::default()),
        "no secret is shared unless said"
    );
}

//! Vectors: AES by FIPS 197 and SP 800-38A, whole hashes by OpenSSL (`core/tests/vectors/keyed.py`).
//! Then the attack on XXH3, tried on this hasher.

use super::*;
use crate::hash::{Hasher, SaltParts, Xxh3};
use alloc::vec;
use kvstrata_testing::forge::{forge_tail, forge_tokens};
use proptest::prelude::*;

const SECRET: [u8; 32] = {
    let mut secret = [0; 32];
    let mut i = 0;
    while i < 32 {
        secret[i] = i as u8;
        i += 1;
    }
    secret
};

/// Both paths, where this processor has both.
fn paths() -> Vec<Keyed> {
    vec![Keyed::new(&SECRET), Keyed::portable(&SECRET)]
}

fn tokens(n: usize) -> Vec<Token> {
    (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect()
}

struct V {
    block_size: usize,
    block: u128,
    third: u128,
    eleventh: u128,
}

#[rustfmt::skip]
const VECTORS: &[V] = &[
    V { block_size: 1, block: 0x6b8549f7_a61214b2_30ca077c_8c24f1b7, third: 0x85a7df28_90a268b2_f316becf_518b2db5, eleventh: 0xa0a18305_6cb7bbf3_042e287d_f5c165df },
    V { block_size: 4, block: 0x93b2a241_5b609b5e_c88227d5_fbc71dcc, third: 0xce665f0a_2108bf90_c014ed79_a97d9d85, eleventh: 0xaa450efb_1df16b2c_5113411e_6e74b06d },
    V { block_size: 5, block: 0x61b07b6e_852d8560_e9f888eb_0ff3c9e5, third: 0xb5b469a4_ea9796e7_542e6828_c7756a7f, eleventh: 0x08c9ffe0_e35ac5a2_64ef940d_d32eba51 },
    V { block_size: 16, block: 0xa1e8fd68_a8529b43_34cce47e_1df8cc70, third: 0x3d63229a_5a601849_e6712048_53a09c7c, eleventh: 0x564507fb_3c5cf772_7b26ae9f_b8035e3c },
    V { block_size: 17, block: 0x9f8c8cfd_f7a7e72e_fd24dc19_6971e56a, third: 0x1fba004d_97d03cdb_2e866ad8_33d7d410, eleventh: 0x2c4d501b_1b348d4c_7dc1535d_ce5253a0 },
    V { block_size: 32, block: 0x3333fe0b_c6d4ecac_60df4f01_321b2938, third: 0x7ed2dc61_1cecfb83_6ed6a1bc_e1637c58, eleventh: 0x025cd0d1_7957f728_2e791b12_4caac526 },
    V { block_size: 64, block: 0x2db3c271_718c4ed6_555e14d4_0001f93d, third: 0x34d87f72_936d0cba_3045c508_f8a935fe, eleventh: 0xe67905b0_c5940efe_795ee5c3_f93b25bc },
    V { block_size: 512, block: 0xaaa36236_5b2fc505_54616833_a5cdc913, third: 0x70cfbda4_3f51438a_7052b65e_4c9f1d45, eleventh: 0x7690deb9_c1d23a82_6488a483_430e6ec1 },
    V { block_size: 513, block: 0xeb97638c_59c42cf8_519a37f2_5c58662c, third: 0xd6908686_0f385dd6_e4294ba6_62d275f8, eleventh: 0xe3805f5e_c93134fc_6d2cf146_15c5ed97 },
];

#[test]
fn keyed_hashes_match_openssl() {
    for hasher in paths() {
        assert_eq!(hasher.id(), 0x1ccea67c_b1508b55_772b6eda_2cb3f838);
        assert_eq!(hasher.bytes(b"salty"), 0x4a9a5d1f_4424d545_c108fbc1_fd74fab7);
        assert_eq!(hasher.bytes(b""), 0xb02dfd27_033d2737_4eed7199_cfe1da1f);
        let marked =
            hasher.marked_hash(SequenceHash::from_bytes([5; 16]), &tokens(16), u128::from_le_bytes([9; 16]));
        assert_eq!(marked.to_u128(), 0xb5bbbdc5_9c51f648_900b7f19_e2a18001);
        for v in VECTORS {
            let mut chain = vec![];
            hasher.extend_chain(
                SequenceHash::default(),
                &tokens(11 * v.block_size),
                v.block_size,
                &mut chain,
            );
            assert_eq!(chain.len(), 11);
            assert_eq!(chain[2].to_u128(), v.third, "{}", v.block_size);
            assert_eq!(chain[10].to_u128(), v.eleventh, "{}", v.block_size);
            assert_eq!(hasher.block_hash(&tokens(v.block_size)).to_u128(), v.block, "{}", v.block_size);
        }
    }
}

/// SP 800-38A, F.2.1 (CBC-AES128.Encrypt): its IV takes the place of AES of the first block. So the
/// state after each group of words is the published ciphertext, on both paths: the chain links a parent
/// of 0 to it, which is one AES more.
#[test]
fn keyed_chain_matches_cbc_of_sp_800_38a() {
    let bytes = |hex: &str| u128::from_str_radix(hex, 16).unwrap().to_be_bytes();
    let key = bytes("2b7e151628aed2a6abf7158809cf4f3c");
    let iv = u128::from_le_bytes(bytes("000102030405060708090a0b0c0d0e0f"));
    let plain = [
        "6bc1bee22e409f96e93d7e117393172a",
        "ae2d8a571e03ac9c9eb76fac45af8e51",
        "30c81c46a35ce411e5fbc1191a0a52ef",
        "f69f2445df4f9b17ad2b417be66c3710",
    ];
    let cipher = [
        "7649abac8119b246cee98e9b12e9197d",
        "5086cb9b507219ee95db113a917678b2",
        "73bed6b8e3c1743b7116e69e22229516",
        "3ff1caa1681fac09120eca307586e1a7",
    ];
    let words = plain.map(|word| u128::from_le_bytes(bytes(word)));
    let tokens: Vec<Token> =
        words.iter().flat_map(|word| [0, 32, 64, 96].map(|at| (word >> at) as u32)).collect();
    // CBC continues over the links too. With one word a block, and the state before as the start, the
    // hashes are those of the published text if each parent is taken out again.
    let aes = Aes128::new(&key.into());
    let mut state = iv;
    for (nth, expected) in cipher.iter().enumerate() {
        let expected = u128::from_le_bytes(bytes(expected));
        let one = &tokens[4 * nth..4 * nth + 4];
        let linked = {
            let mut block = Block::from(expected.to_le_bytes());
            aes.encrypt_block(&mut block);
            SequenceHash::from_bytes(block.into())
        };
        let mut out = vec![];
        portable::chain(&aes, state, SequenceHash::default(), one, 4, &mut out);
        assert_eq!(out, [linked], "portable, word {nth}");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if let Some(rounds) = x86::Rounds::new(key) {
            let mut out = vec![];
            rounds.chain(state, SequenceHash::default(), one, 4, &mut out);
            assert_eq!(out, [linked], "AES-NI, word {nth}");
        }
        state = expected;
    }
}

#[test]
fn keyed_first_block_separates_message_kinds() {
    let hasher = Keyed::new(&SECRET);
    let parent = SequenceHash::default();
    let all = [
        hasher.sequence_hash(parent, &[1, 2, 3]).to_u128(),
        hasher.sequence_hash(parent, &[1, 2, 3, 0]).to_u128(),
        hasher.marked_hash(parent, &[1, 2, 3], 0).to_u128(),
        hasher.block_hash(&[1, 2, 3]).to_u128(),
        hasher.block_hash(&[1, 2, 3, 0]).to_u128(),
        hasher.bytes(&[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]),
        hasher.bytes(&[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0]),
        hasher.bytes(b""),
        hasher.block_hash(&[]).to_u128(),
    ];
    for (i, a) in all.iter().enumerate() {
        assert!(!all[..i].contains(a), "{i}");
    }
}

/// The tokens of a block that gives a victim's hash under the attacker's own salt.
#[test]
fn forged_tokens_fool_xxh3_but_not_the_default() {
    for hasher in [Hasher::Xxh3, Keyed::new(&SECRET).into(), Keyed::portable(&SECRET).into()] {
        let salt = |tenant| SaltParts { tenant, ..SaltParts::default() }.salt(&hasher).to_hash();
        let target = hasher.sequence_hash(salt("victim"), &tokens(16));
        let own = salt("attacker");
        // Half of all values are the sums of some message: the keyed hash need not be one.
        let Some(forged) = forge_tokens(own.to_u128(), target.to_u128()) else {
            assert_ne!(hasher, Hasher::Xxh3);
            continue;
        };
        assert_eq!(Xxh3.sequence_hash(own, &forged), target, "the attack is a real one");
        assert_eq!(hasher.sequence_hash(own, &forged) == target, hasher == Hasher::Xxh3, "{hasher:?}");
    }
}

/// The same by `SaltParts::extra`, which may come from a request: bytes that make the
/// attacker's salt the victim's.
#[test]
fn forged_salts_fool_xxh3_but_not_the_default() {
    let victim = SaltParts { tenant: "victim", model: "m", ..SaltParts::default() };
    let own = |extra: &[u8]| SaltParts { tenant: "attacker", model: "m", lora: "", extra: &[extra] }.encode();
    // The two lengths differ by a multiple of 4, as the equations want it.
    let mut message = own(&[0; 62]);
    assert_eq!((message.len(), victim.encode().len()), (119, 47));
    assert!(forge_tail(&mut message, Xxh3.bytes(&victim.encode())));
    assert_eq!(message[..57], own(&[0; 62])[..57], "only the extra part has changed");
    assert_eq!(Xxh3.bytes(&message), Xxh3.bytes(&victim.encode()), "the attack is a real one");
    for keyed in paths() {
        assert_ne!(keyed.bytes(&message), keyed.bytes(&victim.encode()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// The chain of both paths is that of single blocks (I4).
    #[test]
    fn keyed_chain_is_the_same_on_both_paths(
        tokens in prop::collection::vec(any::<Token>(), 0..700),
        parent: u128,
        secret: [u8; 32],
        block_size in prop::sample::select(vec![1usize, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 64, 65, 600]),
    ) {
        let parent = SequenceHash::from_u128(parent);
        let (fast, slow) = (Keyed::new(&secret), Keyed::portable(&secret));
        let mut chains = [vec![], vec![], vec![]];
        fast.extend_chain(parent, &tokens, block_size, &mut chains[0]);
        slow.extend_chain(parent, &tokens, block_size, &mut chains[1]);
        let mut last = parent;
        chains[2].extend(tokens.chunks_exact(block_size).map(|block| {
            last = slow.sequence_hash(last, block);
            last
        }));
        prop_assert_eq!(&chains[0], &chains[2]);
        prop_assert_eq!(&chains[1], &chains[2]);
    }
}

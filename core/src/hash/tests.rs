//! Vectors of the reference implementation, the Python package `xxhash` 3 (C libxxhash), over three
//! blocks of the tokens `i * 2654435761 mod 2³²`, salt 0.

use super::*;
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;

struct V {
    block_size: usize,
    /// Of the first block.
    block: u128,
    /// Of the third block.
    chain: u128,
}

#[rustfmt::skip]
const VECTORS: &[V] = &[
    V { block_size: 1, block: 0x2a33816e_d7e0c373_dbe563c7_37220b65, chain: 0xf8b34c4e_1662171e_867c4656_0145125f },
    V { block_size: 4, block: 0x4af0ea45_b00ee152_71309bad_de1e3ccf, chain: 0x75eb9f2c_9b9214b9_3badac12_d385c7d6 },
    V { block_size: 5, block: 0x02f7b537_0cdfb7cd_7bd7f072_6619f6c8, chain: 0xdd4385f3_6fbbf85a_cc33b893_0e6e1a38 },
    V { block_size: 16, block: 0x5bcbaed1_e96d1299_0694b544_74e6d6d9, chain: 0xd1f28f01_52301502_34d99826_f0e8d2dc },
    V { block_size: 17, block: 0x4c2aab58_6614d9f0_f6f24aeb_71d7cdc6, chain: 0x82032b6e_8b954664_41c9e3d4_55174538 },
    V { block_size: 28, block: 0x18afee39_734918dc_d865e271_71c71c99, chain: 0x06cdcee7_631553fc_64b2efa4_6675b978 },
    V { block_size: 29, block: 0x47b68c0b_7c154625_55751589_7ee3bbce, chain: 0x36149335_ecf41ae1_d6ff5f31_02b7c54c },
    V { block_size: 32, block: 0xe35e8c3e_1e0c23d0_698a980f_2f255bc7, chain: 0xfbb0f92f_f2b1b3af_f1196f71_51ca24e4 },
    V { block_size: 56, block: 0x79857ebc_2821ea82_a0dfdf53_4b0588de, chain: 0xf1bdb74d_b91e512e_bed43346_fc1aff73 },
    V { block_size: 64, block: 0x7b2c5f9e_d2691cfe_0588fe10_62c06004, chain: 0xbcf3ce9c_44040466_e1e8eb0e_df873b58 },
    V { block_size: 128, block: 0x852a8241_234f454a_4ac45eb9_d4985fee, chain: 0x6fe61ea7_8f9936b0_2ae43466_2a5a9ea9 },
    V { block_size: 512, block: 0x065be683_435fa495_2184ef93_f3bc26ce, chain: 0x63649c2f_7d0e7d5c_d654c928_f6464266 },
    V { block_size: 513, block: 0x0239b86f_9eda6b6f_df624f79_bbace49b, chain: 0x6ee45922_da12cf16_9574e637_f365a923 },
];

fn tokens(n: usize) -> Vec<Token> {
    (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect()
}

fn third<H: BlockHasher>(hasher: &H, block_size: usize) -> u128 {
    let tokens = tokens(3 * block_size);
    let mut out = vec![];
    hasher.extend_chain(SequenceHash::default(), &tokens, block_size, &mut out);
    let mut parent = SequenceHash::default();
    for (block, hash) in tokens.chunks(block_size).zip(&out) {
        parent = hasher.sequence_hash(parent, block);
        assert_eq!(parent, *hash, "extend_chain and sequence_hash differ at block size {block_size}");
    }
    assert_eq!(out.len(), 3);
    parent.to_u128()
}

#[test]
fn xxh3_chain_matches_the_fixed_vectors() {
    for v in VECTORS {
        assert_eq!(third(&Xxh3, v.block_size), v.chain, "block size {}", v.block_size);
        assert_eq!(Xxh3.block_hash(&tokens(v.block_size)).to_u128(), v.block, "block size {}", v.block_size);
    }
}

const PARTS: SaltParts<'_> = SaltParts { tenant: "acme", model: "llama", lora: "", extra: &[b"img", b""] };

#[test]
fn salts_match_fixed_values_and_are_unambiguous() {
    let keyed = Keyed::new(&[7; 32]);
    assert_eq!(PARTS.salt(&Xxh3).to_hash().to_u128(), 0xf3e4bb09_dee17eea_05e8b15a_a141876f);
    let shifted = [
        PARTS,
        SaltParts { tenant: "acm", model: "ellama", ..PARTS },
        SaltParts { model: "", lora: "llama", ..PARTS },
        SaltParts { extra: &[b"img"], ..PARTS },
        SaltParts { extra: &[b"", b"img"], ..PARTS },
        SaltParts { extra: &[b"i", b"mg"], ..PARTS },
        SaltParts::default(),
    ];
    for (i, a) in shifted.iter().enumerate() {
        for b in &shifted[..i] {
            assert_ne!(a.salt(&Xxh3), b.salt(&Xxh3), "{a:?} {b:?}");
            assert_ne!(a.salt(&keyed), b.salt(&keyed), "{a:?} {b:?}");
        }
    }
    assert_eq!(Salt::default().to_hash(), SequenceHash::from_u128(0));
}

#[test]
fn hash_prints_and_stores_the_same_everywhere() {
    let hash = SequenceHash::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
    assert_eq!(hash.to_string(), "0102030405060708090a0b0c0d0e0f10");
    assert_eq!(hash.to_bytes()[0], 0x10);
    assert_eq!(SequenceHash::from_bytes(hash.to_bytes()), hash);
    assert_eq!(
        alloc::format!("{:?}", BlockHash::from_u128(1)),
        "BlockHash(00000000000000000000000000000001)"
    );
}

#[test]
fn hash_from_an_engine_keeps_its_bytes() {
    let digest = core::array::from_fn(|i| i as u8);
    assert_eq!(SequenceHash::from_sha256(&digest).to_bytes(), digest[..16]);
    assert_eq!(SequenceHash::from_u64(u64::MAX).to_u128(), u128::from(u64::MAX));
}

#[test]
fn chain_with_block_size_zero_appends_nothing() {
    let mut out = vec![];
    Xxh3.extend_chain(SequenceHash::default(), &[1, 2, 3], 0, &mut out);
    assert!(out.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every buffer and every specialised size makes the hash of the plain bytes.
    #[test]
    fn xxh3_of_any_length_matches_the_plain_bytes(tokens in prop::collection::vec(any::<Token>(), 0..700), parent: u128) {
        let mut bytes = parent.to_le_bytes().to_vec();
        bytes.extend(tokens.iter().flat_map(|t| t.to_le_bytes()));
        let parent = SequenceHash::from_u128(parent);
        let whole = Xxh3.sequence_hash(parent, &tokens).to_u128();
        prop_assert_eq!(whole, xxhash_rust::xxh3::xxh3_128(&bytes));
        prop_assert_eq!(Xxh3.block_hash(&tokens).to_u128(), xxhash_rust::xxh3::xxh3_128(&bytes[16..]));
    }

    /// Sizes with code of their own agree with the general one.
    #[test]
    fn xxh3_specialised_sizes_match_the_general_one(
        tokens in prop::collection::vec(any::<Token>(), 0..300),
        parent: u128,
        block_size in prop::sample::select(vec![15usize, 16, 17, 31, 32, 33, 63, 64, 65]),
    ) {
        let mut parent = SequenceHash::from_u128(parent);
        let mut out = vec![];
        Xxh3.extend_chain(parent, &tokens, block_size, &mut out);
        let mut oracle = vec![];
        for block in tokens.chunks_exact(block_size) {
            parent = Xxh3.sequence_hash(parent, block);
            oracle.push(parent);
        }
        prop_assert_eq!(out, oracle);
    }
}

//! XXH3-128 inverted: the last 32 bytes of a message that give it any hash. An attack on hashes without
//! a key.
//!
//! For 33 to 128 bytes XXH3-128 mixes 16-byte chunks in pairs, from the middle outwards, into two sums:
//!
//! ```text
//!   low  = (low  + fold(first  ^ secret)) ^ (second.0 + second.1)    fold(a, b): both halves of a × b, xored
//!   high = (high + fold(second ^ secret)) ^ (first.0  + first.1)
//! ```
//!
//! and then makes the hash of the two sums by steps that can be undone. In the last pair, `second.0 =
//! secret` makes its product 0, and `second.1` sets `low`. In the pair before, `second.0 = secret ^ 1`
//! makes the product `second.1 ^ secret`, which sets `high`.

const PRIMES: [u64; 3] = [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x85eb_ca77_c2b2_ae63];

/// The first 128 bytes of XXH3's default secret.
#[rustfmt::skip]
const SECRET: [u64; 16] = [
    0xbe4b_a423_396c_feb8, 0x1cad_21f7_2c81_017c, 0xdb97_9083_e96d_d4de, 0x1f67_b3b7_a4a4_4072,
    0x78e5_c0cc_4ee6_79cb, 0x2172_ffcc_7dd0_5a82, 0x8e24_43f7_7446_08b8, 0x4c26_3a81_e690_35e0,
    0xcb00_c391_bb52_283c, 0xa32e_531b_8b65_d088, 0x4ef9_0da2_9748_6471, 0xd8ac_dea9_46ef_1938,
    0x3f34_9ce3_3f76_faa8, 0x1d4f_0bc7_c7bb_dcf9, 0x3159_b4cd_4be0_518a, 0x6473_78d9_c97e_9fc8,
];

/// Overwrites the last 32 bytes of a message of 64 to 128 bytes, so that its XXH3-128 is `target`. Returns
/// whether that was possible; it is for every `target` that is the hash of some message of this length.
pub fn forge_tail(message: &mut [u8], target: u128) -> bool {
    let len = message.len();
    assert!((64..=128).contains(&len), "{len} bytes");
    let Some([low, high]) = sums_of(target, len) else { return false };
    let chunk = |message: &[u8], at: usize| {
        let word = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().expect("eight bytes"));
        [word(at), word(at + 8)]
    };
    let pairs = if len > 96 {
        4
    } else if len > 64 {
        3
    } else {
        2
    };
    let mut sums = [(len as u64).wrapping_mul(PRIMES[0]), 0];
    for pair in (2..pairs).rev() {
        let [first, second] = [chunk(message, 16 * pair), chunk(message, len - 16 * (pair + 1))];
        sums = mix(sums, first, second, pair);
    }
    let [outer, inner] = [chunk(message, 0), chunk(message, 16)];
    // The value of `high` between the last two pairs, where the last product is 0.
    let between = high ^ outer[0].wrapping_add(outer[1]);
    let product = (between ^ inner[0].wrapping_add(inner[1])).wrapping_sub(sums[1]);
    let second = [SECRET[6] ^ 1, SECRET[7] ^ product];
    sums = mix(sums, inner, second, 1);
    let before = sums[0].wrapping_add(fold(outer[0] ^ SECRET[0], outer[1] ^ SECRET[1]));
    let last = [SECRET[2], (low ^ before).wrapping_sub(SECRET[2])];
    let tail = [second, last].concat();
    for (bytes, word) in message[len - 32..].chunks_exact_mut(8).zip(tail) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    true
}

/// Returns sixteen tokens with the XXH3-128 `target`, behind this parent.
pub fn forge_tokens(parent: u128, target: u128) -> Option<Vec<u32>> {
    let mut message = [0; 80];
    message[..16].copy_from_slice(&parent.to_le_bytes());
    let forged = forge_tail(&mut message, target);
    let token = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    forged.then(|| message[16..].chunks_exact(4).map(token).collect())
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn mix([low, high]: [u64; 2], first: [u64; 2], second: [u64; 2], pair: usize) -> [u64; 2] {
    let secret = &SECRET[4 * pair..];
    [
        low.wrapping_add(fold(first[0] ^ secret[0], first[1] ^ secret[1]))
            ^ second[0].wrapping_add(second[1]),
        high.wrapping_add(fold(second[0] ^ secret[2], second[1] ^ secret[3]))
            ^ first[0].wrapping_add(first[1]),
    ]
}

/// Computes the two sums before the last steps from low + high, and P1·low + P4·high + P2·len.
fn sums_of(hash: u128, len: usize) -> Option<[u64; 2]> {
    let sum = undo_avalanche(hash as u64);
    let weighted = undo_avalanche(((hash >> 64) as u64).wrapping_neg())
        .wrapping_sub((len as u64).wrapping_mul(PRIMES[1]));
    // (P4 − P1) · high = weighted − P1 · sum, where P4 − P1 is even: this fixes all but as many high bits.
    let (factor, value) =
        (PRIMES[2].wrapping_sub(PRIMES[0]), weighted.wrapping_sub(PRIMES[0].wrapping_mul(sum)));
    let even = factor.trailing_zeros();
    if value.trailing_zeros() < even {
        return None;
    }
    let high = (value >> even).wrapping_mul(inverse(factor >> even)) & (u64::MAX >> even);
    Some([sum.wrapping_sub(high), high])
}

fn undo_avalanche(mut value: u64) -> u64 {
    value ^= value >> 32;
    value = value.wrapping_mul(inverse(0x1656_6791_9e37_79f9));
    value ^ (value >> 37)
}

/// Returns the inverse of an odd number, modulo 2⁶⁴, by Newton's iteration.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

//! Candidates for the hash that names blocks, in turns: 4,096 tokens in blocks of 16, chained, each hash
//! over the parent's hash and the tokens.
//!
//!     benches/run --hashes
//!
//! The limit of AES-128-CBC-MAC is one AES call a block: ten rounds, each as long as `aesenc` takes.

use kvstrata_benches::machine;
use kvstrata_benches::rounds::{Effort, Samples};
use kvstrata_benches::work::{Timed, Work};
use kvstrata_core::hash::{BlockHasher, Keyed, Xxh3};
use kvstrata_core::{SequenceHash, Token};
use std::hint::black_box;

const TOKENS: usize = 4096;
const PAGE: usize = 16;

/// One function over all blocks.
struct Chain<F> {
    tokens: Vec<Token>,
    hashes: Vec<SequenceHash>,
    function: F,
}

impl<F: FnMut(&[Token], &mut Vec<SequenceHash>)> Work for Chain<F> {
    fn items(&self) -> u64 {
        TOKENS as u64
    }

    fn run(&mut self) {
        self.hashes.clear();
        (self.function)(black_box(&self.tokens), &mut self.hashes);
        black_box(&self.hashes);
    }
}

fn chain<F: FnMut(&[Token], &mut Vec<SequenceHash>)>(function: F) -> Chain<F> {
    let tokens = (0..TOKENS as u32).map(|i| i.wrapping_mul(2_654_435_761) % 128_000).collect();
    Chain { tokens, hashes: Vec::with_capacity(TOKENS / PAGE), function }
}

/// One level: H(parent ‖ tokens), 80 bytes a block.
fn one_level(hash: impl Fn(&[u8; 80]) -> u128) -> impl FnMut(&[Token], &mut Vec<SequenceHash>) {
    move |tokens, out| {
        let mut bytes = [0; 80];
        let mut parent = 0_u128;
        for block in tokens.chunks_exact(PAGE) {
            bytes[..16].copy_from_slice(&parent.to_le_bytes());
            for (to, token) in bytes[16..].chunks_exact_mut(4).zip(block) {
                to.copy_from_slice(&token.to_le_bytes());
            }
            parent = hash(&bytes);
            out.push(SequenceHash::from_u128(parent));
        }
    }
}

fn ours(hasher: impl BlockHasher) -> impl FnMut(&[Token], &mut Vec<SequenceHash>) {
    move |tokens, out| hasher.extend_chain(SequenceHash::default(), tokens, PAGE, out)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut effort, mut json) = (Effort::FULL, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => effort = Effort::QUICK,
            "--json" => json = arguments.next(),
            other => panic!("{other}: unknown; --quick or --json FILE"),
        }
    }
    let secret = [7; 32];
    let names = [
        "XXH3-128, no secret",
        "AES-128-CBC-MAC, the default",
        "the same by the crate `aes`",
        "SipHash-1-3, 128 bits",
        "SipHash-2-4, 128 bits",
        "AEGIS-128L as a MAC",
        "HighwayHash-128",
        "BLAKE3, keyed",
    ];
    let mut xxh3 = chain(ours(Xxh3));
    let mut keyed = chain(ours(Keyed::new(&secret)));
    let mut portable = chain(ours(Keyed::portable(&secret)));
    let siphash = siphasher::sip128::SipHasher13::new_with_keys(1, 2);
    let mut sip13 = chain(one_level(move |bytes| siphash.hash(bytes).as_u128()));
    let siphash = siphasher::sip128::SipHasher24::new_with_keys(1, 2);
    let mut sip24 = chain(one_level(move |bytes| siphash.hash(bytes).as_u128()));
    let mac = aegis::aegis128l::Aegis128LMac::<16>::new(&[7; 16]);
    let mut aegis = chain(one_level(move |bytes| {
        let mut mac = mac.clone();
        mac.update(bytes);
        u128::from_le_bytes(mac.finalize())
    }));
    let mut highway = chain(one_level(|bytes| {
        use highway::HighwayHash;
        let [low, high] = highway::HighwayHasher::new(highway::Key([1, 2, 3, 4])).hash128(bytes);
        u128::from(low) | u128::from(high) << 64
    }));
    let mut blake3 = chain(one_level(move |bytes| {
        let hash = blake3::keyed_hash(&secret, bytes);
        u128::from_le_bytes(hash.as_bytes()[..16].try_into().expect("sixteen bytes"))
    }));
    let mut contenders: [&mut dyn Timed; 8] =
        [&mut xxh3, &mut keyed, &mut portable, &mut sip13, &mut sip24, &mut aegis, &mut highway, &mut blake3];
    let samples = Samples::take(effort, &mut contenders);
    println!("{}; {}", machine::describe(), machine::today());
    println!();
    println!("| function | Mtokens/s | ns a block | to XXH3's time |");
    println!("|---|---|---|---|");
    let mut rows = Vec::new();
    for (nth, name) in names.into_iter().enumerate() {
        let (time, ratio) = (samples.time(nth), samples.times(nth, 0));
        let rate = time.rate(TOKENS as f64 * 1e3);
        println!(
            "| {name} | {:.0} ({:.0} to {:.0}) | {:.1} | {:.2}× |",
            rate.median,
            rate.low,
            rate.high,
            time.median / (TOKENS / PAGE) as f64,
            ratio.median
        );
        rows.push(serde_json::json!({ "function": name, "mtokens_per_second": rate.json(), "to_xxh3": ratio.json() }));
    }
    if let Some(file) = json {
        let all =
            serde_json::json!({ "machine": machine::describe(), "date": machine::today(), "rows": rows });
        std::fs::write(&file, format!("{all:#}\n")).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

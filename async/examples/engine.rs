//! A toy engine over the manager: a batch of requests, prefill from cached blocks, decode, preemption
//! when blocks run out, and the model's iterations.
//!
//!     cargo run --release -p kvstrata --example engine
//!
//! The "model" writes bytes that follow from the tokens, and checks the bytes that come back: a wrong
//! byte ends the program.

use kvstrata::config::ManagerConfig;
use kvstrata::manager::{AllocateError, Blocks, BlocksMut, KvBlockManager, OnboardOptions, Preempted, Tiers};
use kvstrata::tier::Tier;
use kvstrata_core::{BlockId, SequenceHash, TokenBlockSequence};
use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

const PAGE: usize = 16;
const LAYERS: u32 = 4;
/// Four layers: keys and values of 16 tokens, 2 heads of 64, 2 bytes each.
const BLOCK_BYTES: usize = LAYERS as usize * 2 * PAGE * 2 * 64 * 2;
/// Requests at a time.
const BATCH: usize = 4;
/// Tokens that a turn adds.
const ANSWER: usize = 40;
/// How long an allocation may wait for copies that make room, before a request is preempted. It is
/// short, since the batch holds its blocks while the engine waits.
const PATIENCE: Duration = Duration::from_millis(20);
/// The same if no request can be preempted, and for a prefix that comes up.
const LONG: Duration = Duration::from_secs(10);

/// The error of the example.
type Failed = Box<dyn Error>;

/// A request that is being served.
struct Request {
    number: u64,
    tokens: TokenBlockSequence,
    /// Full blocks, with computed keys and values.
    blocks: Blocks,
    /// The block that is being filled; `None` at a block's boundary.
    tail: Option<BlocksMut>,
    answered: usize,
}

/// A request that waits: new, or preempted.
struct Waiting {
    number: u64,
    tokens: TokenBlockSequence,
    answered: usize,
    /// `None`: it is new, or starts over.
    preempted: Option<Preempted>,
}

#[derive(Default)]
struct Counts {
    reused: usize,
    computed: usize,
    preempted: usize,
    resumed: usize,
}

struct Engine {
    manager: KvBlockManager,
    waiting: VecDeque<Waiting>,
    /// Oldest first; the youngest is preempted first.
    running: Vec<Request>,
    counts: Counts,
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Failed> {
    // An engine reads these from a file and the environment (`kvstrata config` lists them); the example
    // uses calls.
    let config = ManagerConfig::builder()
        .geometry_page_size(PAGE as u32)
        .geometry_layers(Some(LAYERS))
        .geometry_kv_heads(Some(2))
        .geometry_head_size(Some(64))
        .device_blocks(88)
        .host_blocks(512)
        .build()?;
    let manager = KvBlockManager::open(&config)?;
    print!("{}", manager.describe());
    let (waiting, running) = (VecDeque::new(), Vec::new());
    let mut engine = Engine { manager, waiting, running, counts: Counts::default() };

    // A system prompt that all users share, one question each, and later turns that continue the earlier
    // ones.
    let system: Vec<u32> = (0..512).collect();
    for user in 0..6 {
        let question = (0..200).map(|token| 10_000 * (user + 1) + token);
        engine.submit(u64::from(user), &system.iter().copied().chain(question).collect::<Vec<_>>())?;
    }
    let mut turns = 3 * 6;
    while turns > 0 {
        for done in engine.iteration().await? {
            turns -= 1;
            if turns >= 6 {
                let next: Vec<u32> = done.tokens.tokens().iter().copied().chain([7; 20]).collect();
                // When the request is dropped, its blocks become inactive: the next turn finds them,
                // unless they are evicted.
                engine.submit(done.number, &next)?;
            }
        }
    }
    let (Counts { reused, computed, preempted, resumed }, stats) = (engine.counts, engine.manager.stats());
    println!(
        "{reused} blocks reused, {computed} computed; {preempted} requests preempted, {resumed} back whole"
    );
    println!("{} brought up from the host, {} copied down to it", stats.onboarded[0], stats.offloaded[0]);
    assert!(reused > 0 && resumed > 0, "turns share their beginnings, and preempted requests come back");
    assert!(engine.manager.shutdown().await, "everything has ended");
    Ok(())
}

impl Engine {
    fn submit(&mut self, number: u64, prompt: &[u32]) -> Result<(), Failed> {
        let mut tokens = self.manager.default_group().sequence(self.manager.salt("toy", "", &[]));
        tokens.extend(prompt);
        self.waiting.push_back(Waiting { number, tokens, answered: 0, preempted: None });
        Ok(())
    }

    /// Runs one pass of the model over the batch: a token for each request. Returns the requests that
    /// are done.
    async fn iteration(&mut self) -> Result<Vec<Request>, Failed> {
        while self.running.len() < BATCH
            && let Some(next) = self
                .waiting
                .pop_front_if(|next| self.running.is_empty() || fits(&self.manager, &self.running, next))
        {
            if let Some(again) = self.start(next).await? {
                // No room: it is the first to start when there is some.
                self.waiting.push_front(again);
            }
        }
        self.tails().await?;
        let pass = self.manager.begin_iteration()?;
        for layer in 0..LAYERS {
            // Here the kernels of a layer run, over all requests. Copies that wait for this layer of
            // their blocks then go on.
            pass.layer_done(layer)?;
        }
        for at in 0..self.running.len() {
            self.one_token(at)?;
        }
        pass.end()?;
        Ok(self.running.extract_if(.., |request| request.answered == ANSWER).collect())
    }

    /// Starts a request, or resumes a preempted one. Returns it if there is no room.
    async fn start(&mut self, mut next: Waiting) -> Result<Option<Waiting>, Failed> {
        if let Some(preempted) = next.preempted.take() {
            let options = OnboardOptions::default().request(next.number).deadline(LONG);
            let resumed = self.manager.default_group().resume(preempted, options).await?;
            if let (None, Some(tail)) = (resumed.missed, resumed.partial) {
                self.check(&resumed.blocks, &next.tokens)?;
                tail.ids().iter().try_for_each(|block| self.holds(*block, &Engine::so_far(&next.tokens)))?;
                self.counts.resumed += 1;
                println!("request {}: back with {} blocks", next.number, resumed.blocks.len());
                let Waiting { number, tokens, answered, .. } = next;
                let tail = Some(tail).filter(|tail| !tail.is_empty());
                self.running.push(Request { number, tokens, blocks: resumed.blocks, tail, answered });
                return Ok(None);
            }
            // Some of its blocks are gone: it starts over.
        }
        self.prefill(next).await
    }

    /// Takes the prompt's cached blocks from all tiers, and computes the rest.
    async fn prefill(&mut self, next: Waiting) -> Result<Option<Waiting>, Failed> {
        let hashes = next.tokens.hashes();
        let found = self.manager.default_group().match_prefix(hashes);
        let (device, host) = (found.in_tier(Tier::Device), found.in_tier(Tier::Host));
        let options = OnboardOptions::default().request(next.number).deadline(LONG);
        let mut blocks = self.manager.default_group().onboard(found, options)?.await.blocks;
        // Blocks that are missing, for any reason, are computed.
        let rest = &hashes[blocks.len()..];
        let patience = if self.running.is_empty() { LONG } else { PATIENCE };
        let fresh = match self.manager.default_group().allocate(rest.len()).deadline(patience).await {
            Ok(fresh) => fresh,
            // Running requests come first. If there are none, the prompt is too long for the device.
            Err(AllocateError::Deadline { .. }) if !self.running.is_empty() => return Ok(Some(next)),
            Err(error) => return Err(error.into()),
        };
        self.check(&blocks, &next.tokens)?;
        let (number, missing) = (next.number, rest.len());
        println!(
            "request {number}: {device} blocks in the device, {host} from the host, {missing} to compute"
        );
        self.counts.reused += blocks.len();
        for (block, hash) in fresh.ids().iter().zip(rest) {
            self.compute(*block, *hash)?;
        }
        let computed = fresh.register(rest, Some(&blocks))?;
        blocks.append(computed).map_err(|_| "blocks of two managers")?;
        let Waiting { tokens, answered, .. } = next;
        // If a prompt ends within a block, the next step computes that block, too.
        self.running.push(Request { number, tokens, blocks, tail: None, answered });
        Ok(None)
    }

    /// Gives each running request a block to write to. If there is none, the youngest request is
    /// preempted.
    async fn tails(&mut self) -> Result<(), Failed> {
        let mut at = 0;
        while at < self.running.len() {
            if self.running[at].tail.is_none() {
                let patience = if self.running.len() == 1 { LONG } else { PATIENCE };
                match self.manager.default_group().allocate(1).deadline(patience).await {
                    Ok(tail) => self.running[at].tail = Some(tail),
                    Err(AllocateError::Deadline { .. }) if self.running.len() > 1 => {
                        self.preempt_youngest()?;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            at += 1;
        }
        Ok(())
    }

    fn preempt_youngest(&mut self) -> Result<(), Failed> {
        let Some(Request { number, tokens, blocks, tail, answered }) = self.running.pop() else {
            return Ok(());
        };
        println!("request {number}: preempted, with {} blocks", blocks.len());
        self.counts.preempted += 1;
        // A partial block has keys and values, too: those of all tokens so far.
        let tail =
            tail.or_else(|| self.manager.default_group().try_allocate(0)).ok_or("none of no blocks")?;
        for block in tail.ids() {
            self.port()?.copy_in(block.0, 0, &Engine::so_far(&tokens))?;
        }
        // If the preemption is refused, for example during a purge of the tenant, the blocks are
        // dropped: it starts over.
        let preempted = self.manager.default_group().preempt(blocks, tail, number).ok();
        self.waiting.push_front(Waiting { number, tokens, answered, preempted });
        Ok(())
    }

    /// Adds a token to a request. A block that becomes full is registered, so that other requests find
    /// it.
    fn one_token(&mut self, at: usize) -> Result<(), Failed> {
        let request = &mut self.running[at];
        request.answered += 1;
        let token = 1_000_000 + request.tokens.tokens().len() as u32;
        let Some(full) = request.tokens.push(token) else { return Ok(()) };
        let (hash, filled) = (request.tokens.hashes()[full], request.tail.take().ok_or("no block to fill")?);
        self.compute(filled.ids()[0], hash)?;
        let request = &mut self.running[at];
        let block = filled.register(&[hash], Some(&request.blocks))?;
        request.blocks.append(block).map_err(|_| "blocks of two managers")?;
        Ok(())
    }

    /// Simulates the model: the bytes follow from the hash, and so from all tokens up to the block's
    /// end.
    fn compute(&mut self, block: BlockId, hash: SequenceHash) -> Result<(), Failed> {
        self.counts.computed += 1;
        Ok(self.port()?.copy_in(block.0, 0, &bytes_of(hash))?)
    }

    /// Simulates the contents of a partial block.
    fn so_far(tokens: &TokenBlockSequence) -> Vec<u8> {
        bytes_of(SequenceHash::from_u128(tokens.tokens().len() as u128))
    }

    fn check(&self, blocks: &Blocks, tokens: &TokenBlockSequence) -> Result<(), Failed> {
        blocks.ids().zip(tokens.hashes()).try_for_each(|(block, hash)| self.holds(block, &bytes_of(*hash)))
    }

    fn holds(&self, block: BlockId, expected: &[u8]) -> Result<(), Failed> {
        let mut bytes = vec![0; BLOCK_BYTES];
        self.port()?.copy_out(block.0, 0, &mut bytes)?;
        assert!(bytes == expected, "{block} has wrong bytes");
        Ok(())
    }

    fn port(&self) -> Result<&dyn kvstrata_core::DevicePort, Failed> {
        Ok(&**self.manager.default_group().device_port().ok_or("no device")?)
    }
}

/// Whether the device has room for a request, and for all running requests to go on.
fn fits(manager: &Tiers, running: &[Request], next: &Waiting) -> bool {
    // Held meanwhile, so that they are not counted as available, too.
    let there = manager.default_group().match_device(next.tokens.hashes());
    let needed = next.tokens.hashes().len() - there.len() + 1 + running.len();
    manager.default_group().available(Tier::Device) >= needed
}

fn bytes_of(hash: SequenceHash) -> Vec<u8> {
    let seed = hash.to_u128() as u64;
    let word = |at: u64| (seed ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (0..BLOCK_BYTES as u64 / 8).flat_map(|at| word(at).to_le_bytes()).collect()
}

//! A toy engine over the manager: prefill with what is there, decode, preemption, and the model's iterations.
//!
//!     cargo run --release -p kvstrata --example engine
//!
//! The "model" writes bytes that follow from the tokens, and checks those that it is given: a wrong byte ends the program.

use kvstrata::config::ManagerConfig;
use kvstrata::core::hash::SaltParts;
use kvstrata::core::{BlockId, SequenceHash, TokenBlockSequence};
use kvstrata::manager::{Blocks, BlocksMut, KvBlockManager, OnboardOptions};
use kvstrata::tier::Tier;
use std::error::Error;

const PAGE: usize = 16;
const BLOCK_BYTES: usize = 64 << 10;

/// A request that is being served.
struct Request {
    number: u64,
    tokens: TokenBlockSequence,
    /// Full blocks, of which the keys and values are known.
    blocks: Blocks,
    /// The block that is being filled.
    tail: BlocksMut,
}

struct Engine {
    manager: KvBlockManager,
    reused: usize,
    resumed: usize,
    computed: usize,
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // From a file and the environment, as `kvstrata config` lists them; here by calls.
    let config = ManagerConfig::builder()
        .geometry_page_size(PAGE as u32)
        .geometry_block_bytes(Some(BLOCK_BYTES as u64))
        .device_blocks(96)
        .host_blocks(512)
        .build()?;
    let mut engine = Engine { manager: KvBlockManager::new(&config)?, reused: 0, resumed: 0, computed: 0 };
    print!("{}", engine.manager.describe());

    // A system prompt that all share, a question each, and later turns that go on where the ones before ended.
    let system: Vec<u32> = (0..512).collect();
    let mut conversations: Vec<Vec<u32>> = (0..6)
        .map(|user| system.iter().copied().chain((0..200).map(|token| 10_000 * (user + 1) + token)).collect())
        .collect();
    for turn in 0..3 {
        for (number, prompt) in conversations.iter_mut().enumerate() {
            let mut request = engine.prefill(number as u64, prompt).await?;
            for step in 0..40 {
                engine.manager.iteration_begin()?;
                engine.decode(&mut request, 1_000_000 * (turn + 1) + step).await?;
                engine.manager.iteration_end()?;
                if step == 20 && number % 3 == 0 {
                    request = engine.preempt_and_resume(request).await?;
                }
            }
            *prompt = request.tokens.tokens().to_vec();
            // Dropped, its blocks are inactive: found by the next turn, evicted if others need the room.
        }
    }
    let stats = engine.manager.stats();
    println!("{} blocks reused, {} computed", engine.reused, engine.computed);
    println!("{} brought up from the host, {} copied down to it", stats.onboarded[0], stats.offloaded[0]);
    assert!(
        engine.reused > 0 && engine.resumed > 0,
        "turns share their beginnings, and preempted requests come back"
    );
    assert!(engine.manager.shutdown().await, "everything has ended");
    Ok(())
}

impl Engine {
    /// Takes what any tier has of the prompt, and computes the rest.
    async fn prefill(&mut self, number: u64, prompt: &[u32]) -> Result<Request, Box<dyn Error>> {
        let salt = SaltParts { tenant: "", model: "toy", lora: "", extra: &[] }.salt();
        let mut tokens = TokenBlockSequence::new(PAGE, salt)?;
        tokens.extend(prompt);
        let found = self.manager.match_prefix(tokens.hashes());
        let (device, host) = (found.in_tier(Tier::Device), found.in_tier(Tier::Host));
        let options = OnboardOptions { request: number, ..OnboardOptions::default() };
        let up = self.manager.onboard(found, options)?.await;
        let mut blocks = up.blocks;
        for (block, hash) in blocks.ids().zip(tokens.hashes()) {
            self.check(block, *hash)?;
        }
        self.reused += blocks.len();
        // Whatever is missing, and why ever, is computed.
        let rest = &tokens.hashes()[blocks.len()..];
        println!(
            "request {number}: {device} blocks in the device, {host} from the host, {} to compute",
            rest.len()
        );
        let fresh = self.manager.allocate(rest.len()).await?;
        for (block, hash) in fresh.ids().iter().zip(rest) {
            self.compute(*block, *hash)?;
        }
        let computed = fresh.register(rest, Some(&blocks).filter(|blocks| !blocks.is_empty()))?;
        blocks.append(computed).map_err(|_| "one manager")?;
        let tail = self.manager.get_mutable_block().await?;
        Ok(Request { number, tokens, blocks, tail })
    }

    /// One token more.
    async fn decode(&mut self, request: &mut Request, token: u32) -> Result<(), Box<dyn Error>> {
        let Some(full) = request.tokens.push(token) else { return Ok(()) };
        let hash = request.tokens.hashes()[full];
        let next = self.manager.get_mutable_block().await?;
        let filled = std::mem::replace(&mut request.tail, next);
        self.compute(filled.ids()[0], hash)?;
        let block = filled.register(&[hash], Some(&request.blocks))?;
        request.blocks.append(block).map_err(|_| "one manager")?;
        Ok(())
    }

    /// Others need the room for a while.
    async fn preempt_and_resume(&mut self, request: Request) -> Result<Request, Box<dyn Error>> {
        let Request { number, tokens, blocks, tail } = request;
        let preempted = self.manager.preempt(blocks, tail, number).map_err(|_| "one manager")?;
        drop(self.manager.allocate(64).await?);
        let resumed = self.manager.resume(preempted, OnboardOptions::default()).await?;
        match (resumed.missed, resumed.partial) {
            (None, Some(tail)) => {
                for (block, hash) in resumed.blocks.ids().zip(tokens.hashes()) {
                    self.check(block, *hash)?;
                }
                self.resumed += 1;
                println!("request {number}: preempted, and back with {} blocks", resumed.blocks.len());
                Ok(Request { number, tokens, blocks: resumed.blocks, tail })
            }
            // Some of it is gone: as a prefill.
            _ => self.prefill(number, tokens.tokens()).await,
        }
    }

    /// Stands for the model: bytes that follow from the hash, and so from all tokens up to the block's end.
    fn compute(&mut self, block: BlockId, hash: SequenceHash) -> Result<(), Box<dyn Error>> {
        self.computed += 1;
        Ok(self.port()?.copy_in(block.0, 0, &bytes_of(hash))?)
    }

    fn check(&self, block: BlockId, hash: SequenceHash) -> Result<(), Box<dyn Error>> {
        let mut bytes = vec![0; BLOCK_BYTES];
        self.port()?.copy_out(block.0, 0, &mut bytes)?;
        assert!(bytes == bytes_of(hash), "{block} has wrong bytes");
        Ok(())
    }

    fn port(&self) -> Result<&dyn kvstrata::core::DevicePort, Box<dyn Error>> {
        Ok(&**self.manager.device_port().ok_or("no device")?)
    }
}

fn bytes_of(hash: SequenceHash) -> Vec<u8> {
    let seed = hash.to_u128() as u64;
    let word = |at: u64| (seed ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (0..BLOCK_BYTES as u64 / 8).flat_map(|at| word(at).to_le_bytes()).collect()
}

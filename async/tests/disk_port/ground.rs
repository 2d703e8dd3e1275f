//! The ground of the contract: a port, host memory, a way to break things, and a receiver of the answers.

use kvstrata::backend::transfer::{
    Failure, HostMemory, Landed, Landing, Lands, Reserve, TierPort, TierRead, TierWrite, Token,
};
use kvstrata_core::{BlockId, BlockRef, SequenceHash};
use kvstrata_ffi::arena::{BlockRead, BlockWrite};
use kvstrata_ffi::disk::{Name, OwnerId, Urgency};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc;

use crate::common::Random;

pub const SLOTS: u32 = 64;
/// Not a multiple of a page.
pub const BYTES: usize = 5000;
/// Blocks of host memory.
pub const HOST_BLOCKS: usize = 256;
/// Far more than any answer takes; in virtual time where the test runs in it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Faults of the disk, on demand.
pub trait Faults: Send {
    /// Flips a bit of a slot's bytes.
    fn rot(&self, slot: BlockId);

    /// Whether reads fail from now on.
    fn fail_reads(&self, fail: bool);

    /// Loses the device, now or a moment later.
    fn lose(&self);
}

pub struct Ground {
    pub port: Arc<dyn TierPort>,
    pub memory: Arc<HostMemory>,
    pub faults: Box<dyn Faults>,
    ear: Arc<Ear>,
    answers: mpsc::UnboundedReceiver<Landed>,
    asked: BTreeSet<u64>,
}

/// Sends each landing into the channel.
struct Ear {
    heard: mpsc::UnboundedSender<Landed>,
    next: AtomicU64,
}

impl Lands for Ear {
    fn landed(&self, landed: Landed) {
        // A failed test listens no more.
        let _ = self.heard.send(landed);
    }
}

pub fn hash(number: u64) -> SequenceHash {
    SequenceHash::from_u128(u128::from(number) << 64 | 7)
}

pub fn name(number: u64) -> Name {
    Name { hash: hash(number), parent: None, owner: OwnerId::NONE }
}

/// The bytes of a block.
pub fn bytes_of(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    (0..BYTES).map(|_| random.next() as u8).collect()
}

/// The token of an answer.
pub fn token(landed: &Landed) -> u64 {
    match landed {
        Landed::Read(token, _) | Landed::Write(token, _) => token.0,
        Landed::Copies(_) => panic!("a disk copies nothing"),
    }
}

impl Ground {
    pub fn new(port: Arc<dyn TierPort>, memory: Arc<HostMemory>, faults: Box<dyn Faults>) -> Ground {
        let (heard, answers) = mpsc::unbounded_channel();
        let ear = Arc::new(Ear { heard, next: AtomicU64::new(1) });
        Ground { port, memory, faults, ear, answers, asked: BTreeSet::new() }
    }

    pub fn landing(&self) -> Landing {
        Landing::new(Arc::clone(&self.ear) as Arc<dyn Lands>)
    }

    /// A new token. Its answer is expected.
    pub fn token(&mut self) -> Token {
        let token = self.ear.next.fetch_add(1, Relaxed);
        self.asked.insert(token);
        Token(token)
    }

    pub fn take(&self, wanted: usize) -> Vec<BlockId> {
        let mut slots = Vec::new();
        self.port.reserve(Reserve::Some(wanted), &mut slots);
        slots
    }

    /// Gives slots back. They are free, or owned by the port alone for a while.
    pub fn give_back(&self, slots: impl IntoIterator<Item = BlockId>) {
        slots.into_iter().for_each(|slot| self.port.release(slot));
        self.port.forget_released();
    }

    /// Host block `block` with the bytes of block `number`.
    pub fn filled(&self, block: u32, number: u64) -> BlockRead {
        let mut bytes = self.memory.write(block).expect("idle");
        bytes.copy_from_slice(&bytes_of(number));
        bytes.into_read()
    }

    pub fn write_to(&mut self, slot: BlockId, number: u64, bytes: BlockRead) -> Token {
        let token = self.token();
        self.port.write(TierWrite {
            token,
            slot,
            name: name(number),
            bytes,
            sum: None,
            landing: self.landing(),
        });
        token
    }

    /// Starts a write of block `number` from host block `block`.
    pub fn write(&mut self, number: u64, block: u32) -> (BlockId, Token) {
        let slot = self.take(1).pop().expect("a slot");
        let bytes = self.filled(block, number);
        (slot, self.write_to(slot, number, bytes))
    }

    /// Starts a read of a block, which is held as a reference until the answer.
    pub fn read(&mut self, number: u64, block: u32) -> Option<(BlockRef, Token)> {
        let held = self.port.find(hash(number), true)?.into_ref();
        let token = self.token();
        self.port.read(TierRead {
            token,
            slot: held.id,
            hash: hash(number),
            urgency: Urgency::Ordinary,
            buffer: self.memory.write(block).expect("idle"),
            landing: self.landing(),
        });
        Some((held, token))
    }

    /// The next answer, to a request that was not answered before.
    pub async fn next(&mut self) -> Landed {
        let next = tokio::time::timeout(PATIENCE, self.answers.recv()).await;
        let landed = next.expect("answered in time").expect("the ear is here");
        assert!(self.asked.remove(&token(&landed)), "answered once, and only what was asked: {landed:?}");
        landed
    }

    pub async fn written(&mut self) -> Result<BlockRead, Failure> {
        match self.next().await {
            Landed::Write(_, outcome) => outcome,
            other => panic!("a write was asked for: {other:?}"),
        }
    }

    pub async fn came(&mut self) -> Result<BlockWrite, Failure> {
        match self.next().await {
            Landed::Read(_, outcome) => outcome,
            other => panic!("a read was asked for: {other:?}"),
        }
    }

    /// Writes blocks, one after the other. Returns their slots.
    pub async fn store(&mut self, numbers: std::ops::Range<u64>) -> Vec<BlockId> {
        let mut slots = Vec::new();
        for number in numbers {
            slots.push(self.write(number, 0).0);
            drop(self.written().await.expect("written"));
        }
        slots
    }

    /// Reads a block into host block 0. `None`: not found.
    pub async fn fetch(&mut self, number: u64) -> Option<Result<Vec<u8>, Failure>> {
        let (held, _) = self.read(number, 0)?;
        let outcome = self.came().await.map(|bytes| bytes.to_vec());
        self.release(held);
        if outcome.is_err() {
            self.port.forget(held);
        }
        Some(outcome)
    }

    pub fn release(&self, held: BlockRef) {
        drop(self.port.pool().adopt_immutable(held).expect("held"));
    }

    pub fn outstanding(&self) -> usize {
        self.asked.len()
    }

    /// Drops the port, and receives all answers to the end.
    pub async fn close(self) -> Vec<Landed> {
        let Ground { port, ear, mut answers, mut asked, faults, .. } = self;
        drop((port, faults));
        // Requests have landings of their own.
        drop(ear);
        let mut last = Vec::new();
        let end = async {
            while let Some(landed) = answers.recv().await {
                assert!(asked.remove(&token(&landed)), "answered once, and only what was asked: {landed:?}");
                last.push(landed);
            }
        };
        tokio::time::timeout(PATIENCE, end).await.expect("answered in time, and no landing kept");
        assert!(asked.is_empty(), "never answered: {asked:?}");
        last
    }
}

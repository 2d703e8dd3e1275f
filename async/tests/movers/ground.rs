//! The ground of the contract: a mover, host memory, and a device that shows its bytes.

use kvstrata::transfer::{
    Cause, Copies, Copy, DeviceMover, Failure, HostMemory, HostSide, Landed, Landing, Lands, Token,
};
use kvstrata_core::BlockId;
use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Far longer than any answer takes.
const HANGS: Duration = Duration::from_secs(100);

/// A backend to test.
pub trait Ground {
    /// Layers of blocks to try, in bytes. A backend overrides them if its layers may differ, or have odd
    /// sizes.
    fn shapes(&self) -> Vec<Vec<usize>> {
        vec![vec![4096; 3], vec![65_536]]
    }

    /// Makes a mover between so many blocks on either side. `None`: the machine lacks
    /// something, which it has printed.
    fn make(&self, blocks: u32, layers: &[usize]) -> Option<Field>;
}

/// The device's bytes, reached in any way there is. Nothing else uses the device meanwhile.
pub trait DeviceBytes {
    fn peek(&self, block: u32) -> Vec<u8>;
    fn poke(&self, block: u32, bytes: &[u8]);
    /// Keeps a block from copies, which are to be busy. `None`: the device cannot tell.
    fn hold(&self, _block: u32) -> Option<Box<dyn Any>> {
        None
    }
}

pub struct Field {
    pub mover: Arc<dyn DeviceMover>,
    pub memory: Arc<HostMemory>,
    pub device: Box<dyn DeviceBytes>,
    pub blocks: u32,
    /// Faults are expected, and this function releases answers that they hold back.
    pub faulty: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// A copy to be made.
#[derive(Debug, Clone)]
pub struct Move {
    pub up: bool,
    pub device: u32,
    pub host: u32,
    pub layers: Range<u32>,
    pub verify: bool,
}

/// Receives the answer to a list.
#[derive(Default)]
pub struct Inbox {
    answers: Mutex<Vec<Vec<Copy>>>,
    news: Condvar,
}

impl Lands for Inbox {
    fn landed(&self, landed: Landed) {
        let Landed::Copies(list) = landed else { panic!("copies were started") };
        self.answers.lock().expect("no panic").push(list);
        self.news.notify_all();
    }
}

impl Inbox {
    /// Waits for the only answer. Its copies are in the order in which they were started.
    pub fn answer(&self) -> Vec<Copy> {
        let waiting = self.answers.lock().expect("no panic");
        let (mut answers, late) =
            self.news.wait_timeout_while(waiting, HANGS, |answers| answers.is_empty()).expect("no panic");
        assert!(!late.timed_out(), "no answer");
        let mut list = answers.pop().expect("not empty");
        assert!(answers.is_empty(), "answered more than once");
        list.sort_by_key(|copy| copy.token.0);
        list
    }

    pub fn answers(&self) -> usize {
        self.answers.lock().expect("no panic").len()
    }
}

impl Field {
    /// The copy, with the guard that it needs. Tokens count from 0 in each list.
    pub fn copy(&self, token: usize, one: &Move) -> Copy {
        let host = if one.up {
            HostSide::Read(self.memory.read(one.host).expect("nobody writes it"))
        } else {
            HostSide::Write(self.memory.write(one.host).expect("nobody uses it"))
        };
        Copy::new(Token(token as u64), BlockId(one.device), host, one.layers.clone(), one.verify)
    }

    pub fn start(&self, moves: &[Move]) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::default());
        let list = moves.iter().enumerate().map(|(token, one)| self.copy(token, one)).collect();
        self.mover.start(Copies::new(list, Landing::new(Arc::<Inbox>::clone(&inbox))));
        inbox
    }

    /// Starts blocks, or layers of them, to be overwritten.
    pub fn zero(&self, blocks: &[(u32, Range<u32>)]) -> Arc<Inbox> {
        let inbox = Arc::new(Inbox::default());
        let zeros = |(token, (block, layers)): (usize, &(u32, Range<u32>))| {
            Copy::new(Token(token as u64), BlockId(*block), HostSide::Zeros, layers.clone(), false)
        };
        let list = blocks.iter().enumerate().map(zeros).collect();
        self.mover.start(Copies::new(list, Landing::new(Arc::<Inbox>::clone(&inbox))));
        inbox
    }

    /// The outcomes of such a list, which only faults may spoil.
    pub fn zeroed(&self, blocks: &[(u32, Range<u32>)], answer: &[Copy]) -> Vec<Result<(), Failure>> {
        assert_eq!(answer.len(), blocks.len(), "all are answered");
        let check = |(copy, (block, _)): (&Copy, &(u32, Range<u32>))| {
            assert!(copy.device.0 == *block && matches!(copy.host, HostSide::Zeros), "{copy:?}");
            assert!(copy.outcome.is_ok() || self.faulty.is_some(), "{copy:?}");
            copy.outcome
        };
        answer.iter().zip(blocks).map(check).collect()
    }

    /// Releases answers that faults hold back, and waits.
    pub fn wait(&self, inbox: &Inbox) -> Vec<Copy> {
        if let Some(release) = &self.faulty {
            release();
        }
        inbox.answer()
    }

    /// Runs copies that only faults may spoil, and returns their outcomes.
    pub fn run(&self, moves: &[Move]) -> Vec<Result<(), Failure>> {
        let answer = self.wait(&self.start(moves));
        self.outcomes(moves, &answer)
    }

    /// Checks an answer, and returns its outcomes: these copies and no others, with their
    /// guards; failed only by faults.
    pub fn outcomes(&self, moves: &[Move], answer: &[Copy]) -> Vec<Result<(), Failure>> {
        assert_eq!(answer.len(), moves.len(), "all are answered");
        let check = |(token, (one, copy)): (usize, (&Move, &Copy))| {
            assert_eq!((copy.token, copy.device.0), (Token(token as u64), one.device));
            let host = match &copy.host {
                HostSide::Read(block) if one.up => block.block(),
                HostSide::Write(block) if !one.up => block.block(),
                other => panic!("a copy came back with {other:?}"),
            };
            assert_eq!(host, one.host as usize);
            match copy.outcome {
                Err(failure) if self.faulty.is_some() => {
                    assert!(matches!(failure.cause, Cause::Device | Cause::Abandoned), "{failure}");
                }
                outcome => assert_eq!(outcome, Ok(()), "{one:?}"),
            }
            copy.outcome
        };
        moves.iter().zip(answer).enumerate().map(check).collect()
    }

    pub fn peek_host(&self, block: u32) -> Vec<u8> {
        self.memory.read(block).expect("nobody writes it").to_vec()
    }

    pub fn layers(&self) -> Range<u32> {
        0..self.memory.layers()
    }
}

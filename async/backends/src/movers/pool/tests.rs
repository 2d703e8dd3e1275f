//! The pool, with work that waits, panics and counts on demand.

use super::*;
use kvstrata_core::BlockId;
use kvstrata_tiers::transfer::{HostMemory, HostSide, Landed, Landing, Lands, Token};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

type Answer = Vec<(u64, Result<(), Failure>)>;

const ABANDONED: Result<(), Failure> = Err(Failure::of(Cause::Abandoned));

/// Sends landings to the test, sorted by token.
struct ToTest(Mutex<Sender<Answer>>);

impl Lands for ToTest {
    fn landed(&self, landed: Landed) {
        let Landed::Copies(list) = landed else { panic!("copies were started") };
        let mut answer: Answer = list.iter().map(|copy| (copy.token.0, copy.outcome)).collect();
        answer.sort_by_key(|(token, _)| *token);
        self.0.lock().expect("no panic").send(answer).expect("the test listens");
    }
}

fn lands() -> (Arc<dyn Lands>, Receiver<Answer>) {
    let (to, answers) = channel();
    (Arc::new(ToTest(Mutex::new(to))), answers)
}

/// Copies with these tokens, of one block of host memory, which the pool never looks at.
fn copies(tokens: &[u64], lands: &Arc<dyn Lands>) -> Copies {
    let memory = HostMemory::new(1, &[1]).expect("memory");
    let copy = |token: &u64| {
        let host = HostSide::Read(memory.read(0).expect("readers share"));
        Copy { outcome: Ok(()), ..Copy::new(Token(*token), BlockId(0), host, 0..1, false) }
    };
    Copies::new(tokens.iter().map(copy).collect(), Landing::new(Arc::clone(lands)))
}

/// Receives what the test waits for; `None` if it hangs for this long.
fn hear<T>(from: &Receiver<T>) -> Option<T> {
    from.recv_timeout(Duration::from_secs(20)).ok()
}

fn all(tokens: &[u64], outcome: Result<(), Failure>) -> Answer {
    tokens.iter().map(|token| (*token, outcome)).collect()
}

#[test]
fn panicking_copy_fails_alone_and_the_thread_goes_on() {
    let work = |copy: &mut Copy| if copy.token.0 == 2 { panic!("as told") } else { Ok(()) };
    let pool = Pool::new(1, Box::new(work)).expect("a thread");
    let (lands, answers) = lands();
    pool.start(copies(&[1, 2, 3], &lands));
    pool.start(copies(&[4], &lands));
    assert_eq!(hear(&answers), Some(vec![(1, Ok(())), (2, ABANDONED), (3, Ok(()))]));
    assert_eq!(hear(&answers), Some(all(&[4], Ok(()))));
}

#[test]
fn list_shared_by_threads_is_answered_once() {
    // Each copy waits until all three are in flight: fewer than three threads at work on the list would hang.
    let together = std::sync::Barrier::new(3);
    let work = move |_: &mut Copy| {
        together.wait();
        Ok(())
    };
    let pool = Pool::new(3, Box::new(work)).expect("threads");
    let (lands, answers) = lands();
    for first in [0, 10, 20] {
        pool.start(copies(&[first, first + 1, first + 2], &lands));
        assert_eq!(hear(&answers), Some(all(&[first, first + 1, first + 2], Ok(()))));
    }
    drop((pool, lands));
    assert!(answers.try_recv().is_err(), "no answer more");
}

#[test]
fn onboards_go_before_the_rest_of_started_offloads() {
    let ((begun, has_begun), (go_on, may_go_on)) = (channel(), channel::<()>());
    let (begun, may_go_on) = (Mutex::new(begun), Mutex::new(may_go_on));
    let work = move |copy: &mut Copy| {
        begun.lock().expect("no panic").send(copy.token.0).expect("the test listens");
        may_go_on.lock().expect("no panic").recv().expect("the test goes on");
        Ok(())
    };
    let memory = HostMemory::new(2, &[1]).expect("memory");
    let pool = Pool::new(1, Box::new(work)).expect("a thread");
    let (lands, answers) = lands();
    let down = |token, host| Copy::new(Token(token), BlockId(0), host, 0..1, false);
    let write = |block| HostSide::Write(memory.write(block).expect("free"));
    pool.start(Copies::new(vec![down(10, write(0)), down(11, write(1))], Landing::new(Arc::clone(&lands))));
    let mut order = vec![hear(&has_begun).expect("the first one")];
    // While that copy is out on the only thread.
    pool.start(Copies::new(vec![down(12, HostSide::Zeros)], Landing::new(Arc::clone(&lands))));
    pool.start(copies(&[1, 2], &lands));
    pool.start(copies(&[3, 4, 5], &lands));
    for _ in 0..7 {
        go_on.send(()).expect("a thread that waits");
        order.push(hear(&has_begun).expect("the next one"));
    }
    go_on.send(()).expect("a thread that waits");
    // One in five still goes down.
    assert_eq!(order, [10, 1, 2, 3, 4, 11, 5, 12]);
    let answered: Vec<_> = (0..4).map(|_| hear(&answers).expect("an answer")[0].0).collect();
    assert_eq!(answered, [1, 10, 3, 12]);
}

#[test]
fn pool_end_abandons_queued_and_finishes_running_copies() {
    let ((begun, has_begun), (go_on, may_go_on)) = (channel(), channel::<()>());
    let (begun, may_go_on) = (Mutex::new(begun), Mutex::new(may_go_on));
    let work = move |copy: &mut Copy| {
        begun.lock().expect("no panic").send(copy.token.0).expect("the test listens");
        may_go_on.lock().expect("no panic").recv().expect("the test goes on");
        Ok(())
    };
    let pool = Pool::new(1, Box::new(work)).expect("a thread");
    let (lands, answers) = lands();
    pool.start(copies(&[1, 2, 3], &lands));
    pool.start(copies(&[4, 5], &lands));
    let running = hear(&has_begun).expect("the first one");
    let answers = &answers;
    // The scope owns the sender, so a failure releases the thread, too.
    std::thread::scope(move |scope| {
        let dropped = scope.spawn(move || drop(pool));
        // No copy of it has begun: it is answered while the other list's copy still runs.
        assert_eq!(hear(answers), Some(all(&[4, 5], ABANDONED)));
        // A drop that did not wait for the thread would be through long before.
        for _ in 0..10_000 {
            std::thread::yield_now();
            assert!(!dropped.is_finished());
        }
        assert!(answers.try_recv().is_err());
        go_on.send(()).expect("a thread that waits");
        let expected = [1, 2, 3].map(|token| (token, if token == running { Ok(()) } else { ABANDONED }));
        assert_eq!(hear(answers), Some(expected.to_vec()));
        dropped.join().expect("no panic");
    });
    let gone = has_begun.try_recv();
    assert_eq!(
        gone,
        Err(TryRecvError::Disconnected),
        "nothing else was begun, the work is gone with the threads"
    );
}

#[test]
fn landing_that_panics_leaves_the_thread_running() {
    struct Panics;
    impl Lands for Panics {
        fn landed(&self, _: Landed) {
            panic!("as told");
        }
    }
    let pool = Pool::new(1, Box::new(|_: &mut Copy| Ok(()))).expect("a thread");
    pool.start(copies(&[1, 2], &(Arc::new(Panics) as Arc<dyn Lands>)));
    let (lands, answers) = lands();
    pool.start(copies(&[3], &lands));
    assert_eq!(hear(&answers), Some(all(&[3], Ok(()))), "the thread goes on");
}

#[test]
fn landing_may_drop_the_pool_that_calls_it() {
    struct Drops(Mutex<(Option<Pool>, Sender<()>)>);
    impl Lands for Drops {
        fn landed(&self, _: Landed) {
            let mut held = self.0.lock().expect("no panic");
            drop(held.0.take());
            held.1.send(()).expect("the test listens");
        }
    }
    let (to, answers) = channel();
    let drops = Arc::new(Drops(Mutex::new((None, to))));
    let mut held = drops.0.lock().expect("no panic");
    let pool = held.0.insert(Pool::new(2, Box::new(|_: &mut Copy| Ok(()))).expect("threads"));
    pool.start(copies(&[1], &(Arc::<Drops>::clone(&drops) as Arc<dyn Lands>)));
    drop(held);
    assert_eq!(hear(&answers), Some(()));
}

#[test]
fn empty_list_is_answered_and_no_threads_are_refused() {
    let pool = Pool::new(1, Box::new(|_: &mut Copy| Ok(()))).expect("a thread");
    let (lands, answers) = lands();
    pool.start(copies(&[], &lands));
    assert_eq!(answers.try_recv(), Ok(vec![]));
    assert!(matches!(Pool::new(0, Box::new(|_: &mut Copy| Ok(()))), Err(ThreadsError::NoThreads)));
}

//! loom model of I1: `RUSTFLAGS="--cfg loom" cargo test -p kvstrata-ffi --lib doorbell`.
//! Mutations: `KVSTRATA_MUTATION=doorbell_announce_fence` or `doorbell_doze_fence` must make it fail.

use super::Doorbell;
use crate::sync::{Arc, AtomicUsize, Notify, Ordering, model_within, spawn};

/// `callers` publish one request each; the ring thread takes them all, and sleeps in between. A lost
/// wake-up leaves it asleep with a request published: the model sees a deadlock.
fn callers_and_a_sleeper(callers: usize) {
    // Two forced switches: enough to find either mutation.
    model_within(2, move || {
        let doorbell = Arc::new(Doorbell::new());
        // The published requests: Relaxed, so that only the fences order them with the flag.
        let published = Arc::new(AtomicUsize::new(0));
        let bell = Arc::new(Notify::new());
        for caller in 0..callers {
            // A kind of its own for each caller: the ring thread watches all kinds that it
            // has not received.
            let kind = 1 << caller;
            let (doorbell, published, bell) =
                (Arc::clone(&doorbell), Arc::clone(&published), Arc::clone(&bell));
            spawn(move || {
                published.fetch_or(kind, Ordering::Relaxed);
                if doorbell.announce(kind) {
                    bell.notify();
                }
            });
        }
        let all = (1 << callers) - 1;
        let mut taken = 0;
        while taken != all {
            taken |= published.load(Ordering::Relaxed);
            let watched = all & !taken;
            if watched != 0 && doorbell.doze(watched, || published.load(Ordering::Relaxed) & watched != 0) {
                bell.wait();
                doorbell.woke();
            }
        }
    });
}

#[test]
fn doorbell_one_caller_is_never_missed() {
    callers_and_a_sleeper(1);
}

#[test]
fn doorbell_two_callers_are_never_missed() {
    callers_and_a_sleeper(2);
}

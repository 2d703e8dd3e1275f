//! Completions by descriptor, without a runtime of the caller's.

use crate::ground::{BYTES, PATIENCE, aligned, check, close, config, keys, open};
use kvstrata::store::{BatchOptions, Client, Completion, JobId};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

/// Waits for the client's descriptor, and drains it.
fn drained(client: &Client, ended: &mut Vec<Completion>) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    // SAFETY: the client keeps the descriptor open during the call.
    let descriptor = unsafe { std::os::fd::BorrowedFd::borrow_raw(client.descriptor()) };
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    let wait = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut polled, Some(&wait)).expect("polled"), 1, "nothing ends");
    client.drain(ended);
}

#[test]
fn each_client_gets_its_own_completions_once() {
    let of = open(&config("sizes = [\"16K\"]\n[host]\nbytes = \"256K\"\n[disk]\nbytes = \"4M\""));
    let (one, other) = (of.client().expect("a client"), of.client().expect("a client"));
    let submit = |client: &Client, number: u64| {
        let memory = aligned(&[number], BYTES);
        client.submit_store(&keys(&of, [number]), memory, BatchOptions::default()).expect("begun")
    };
    let jobs: [BTreeSet<JobId>; 2] = [
        (0..20).map(|number| submit(&one, number)).collect(),
        (20..40).map(|number| submit(&other, number)).collect(),
    ];
    for (client, jobs) in [&one, &other].into_iter().zip(jobs) {
        let mut ended = Vec::new();
        while ended.len() < jobs.len() {
            drained(client, &mut ended);
        }
        assert_eq!(ended.iter().map(|ended| ended.job).collect::<BTreeSet<_>>(), jobs);
        assert!(ended.iter().all(Completion::is_done));
    }
    close(&of);
}

#[test]
fn many_threads_submit_and_one_drains() {
    const EACH: u64 = 200;
    let of = open(&config("sizes = [\"16K\"]\n[host]\nbytes = \"256K\"\n[disk]\nbytes = \"16M\""));
    let client = of.client().expect("a client");
    let submitted = Mutex::new(BTreeSet::new());
    let began = Instant::now();
    let ended = thread::scope(|scope| {
        for thread in 0..3 {
            let (of, client, submitted) = (&of, &client, &submitted);
            scope.spawn(move || {
                for step in 0..EACH {
                    let number = (thread * 7 + step * 3) % 50;
                    let (key, memory) = (keys(of, [number]), aligned(&[number], BYTES));
                    let job = match step % 3 {
                        0 => client.submit_store(&key, memory, BatchOptions::default()),
                        1 => client.submit_load(&key, memory, BatchOptions::default()),
                        _ => client.submit_forget(&key),
                    };
                    assert!(submitted.lock().expect("whole").insert(job.expect("begun")));
                }
            });
        }
        let mut ended = Vec::new();
        while ended.len() < 3 * EACH as usize {
            drained(&client, &mut ended);
            assert!(began.elapsed() < PATIENCE, "{} ended", ended.len());
        }
        ended.iter().map(|ended| ended.job).collect::<BTreeSet<JobId>>()
    });
    assert!(ended == submitted.into_inner().expect("whole"), "each batch ends once");
    assert_eq!(of.stats().batches, 0);
    close(&of);
}

#[test]
fn loads_through_a_client_bring_the_bytes() {
    let of = open(&config("sizes = [\"16K\"]\n[disk]\nbytes = \"1M\""));
    let client = of.client().expect("a client");
    let mut ended = Vec::new();
    client.submit_store(&keys(&of, [1]), aligned(&[1], BYTES), BatchOptions::default()).expect("begun");
    drained(&client, &mut ended);
    let memory = aligned(&[9], BYTES);
    client.submit_load(&keys(&of, [1]), memory.clone(), BatchOptions::default()).expect("begun");
    drained(&client, &mut ended);
    assert!(ended.iter().all(Completion::is_done));
    check(&memory, &[1]);
    drop(client);
    close(&of);
}

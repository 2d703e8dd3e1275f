//! A task of the runtime drops the last handle of a manager. Ending a manager may block, so another
//! thread has to do it.

use super::ground::{BYTES, settings};
use kvstrata::manager::{KvBlockManager, Needs, Parts, StackParts};
use kvstrata::transfer::{Copies, DeviceMover};
use kvstrata_core::PoolConfig;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// A mover that is dropped with its manager, and reports on which thread.
struct Goes(UnboundedSender<ThreadId>);

impl DeviceMover for Goes {
    fn start(&self, copies: Copies) {
        drop(copies);
    }

    fn blocks_at_once(&self) -> usize {
        1
    }

    fn describe(&self) -> String {
        "goes".to_owned()
    }
}

impl fmt::Debug for Goes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Goes")
    }
}

impl Drop for Goes {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().id());
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A waker that drops the waiting future, with all that it owns.
struct Drops(Mutex<Option<Work>>);

impl Wake for Drops {
    fn wake(self: Arc<Drops>) {
        let work = self.0.lock().expect("no panic").take();
        drop(work);
    }
}

#[tokio::test]
async fn last_handle_dropped_by_a_task_ends_on_another_thread() {
    let (goes, mut gone) = unbounded_channel();
    let stack = StackParts {
        name: "one".to_owned(),
        device: PoolConfig::new(1),
        port: None,
        mover: Arc::new(Goes(goes)),
        memory: None,
        host: None,
        below: Vec::new(),
        block_bytes: BYTES as u64,
        layers: 1,
        needs: Needs::All { page: 1 },
        linked: [false; 2],
        ahead_first: [false; 2],
    };
    let runtime = tokio::runtime::Handle::current();
    let parts = Parts { stacks: vec![stack], runtime, own: None, names: None };
    let config = settings(1, 0).build().expect("a configuration");
    let manager = KvBlockManager::of_parts(&config, parts).expect("parts that fit");
    // The last handles are in this future, and the task of the deadlines wakes it.
    let work: Work = Box::pin(async move {
        let _held = manager.default_group().try_allocate(1).expect("it is free");
        drop(manager.default_group().allocate(1).deadline(Duration::from_millis(5)).await);
    });
    let waits = Arc::new(Drops(Mutex::new(Some(work))));
    let waker = Waker::from(Arc::clone(&waits));
    if let Some(work) = &mut *waits.0.lock().expect("no panic") {
        assert!(work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let by = gone.recv().await.expect("the manager has ended");
    assert!(waits.0.lock().expect("no panic").is_none(), "by its deadline");
    assert_ne!(by, thread::current().id(), "here runs the runtime");
}

//! A turnstile: callers wait until they are let pass, in the order of arrival, or until it is open to all.

use super::lock;
use futures_channel::oneshot;
use std::collections::VecDeque;
use std::sync::Mutex;

#[derive(Debug, Default)]
pub struct Turnstile(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Passes for callers that have not come yet.
    passes: usize,
    is_open: bool,
    waiting: VecDeque<oneshot::Sender<()>>,
}

impl Turnstile {
    pub async fn pass(&self) {
        let (tell, told) = oneshot::channel();
        {
            let mut state = lock(&self.0);
            if state.is_open {
                return;
            }
            if let Some(left) = state.passes.checked_sub(1) {
                state.passes = left;
                return;
            }
            state.waiting.push_back(tell);
        }
        let _ = told.await;
    }

    pub fn let_pass(&self, count: usize) {
        for _ in 0..count {
            let first = lock(&self.0).waiting.pop_front();
            match first {
                Some(first) => _ = first.send(()),
                None => lock(&self.0).passes += 1,
            }
        }
    }

    pub fn open(&self) {
        let mut state = lock(&self.0);
        state.is_open = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(|first| _ = first.send(()));
    }
}

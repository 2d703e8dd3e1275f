//! A signal that tells all listeners, once.
//!
//! Invariants
//! - I1: a listener hears the first [`tell`](Signal::tell) after its [`listen`](Signal::listen). So a
//!   caller that listens before it looks at the state misses no change.

use futures_channel::oneshot;
use std::sync::{Mutex, PoisonError};

/// Listeners.
#[derive(Debug, Default)]
pub(crate) struct Signal(Mutex<Vec<oneshot::Sender<()>>>);

/// Ends with the next signal.
pub(crate) type Told = oneshot::Receiver<()>;

impl Signal {
    /// Listens from now on.
    pub(crate) fn listen(&self) -> Told {
        let (tell, told) = oneshot::channel();
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Drops listeners that are gone, so that they do not pile up.
        listeners.retain(|listener| !listener.is_canceled());
        listeners.push(tell);
        told
    }

    /// Tells all listeners. Their wakers are callers' code: do not call this under the engine's lock.
    pub(crate) fn tell(&self) {
        let listeners = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        listeners.into_iter().for_each(|listener| _ = listener.send(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_hear_one_signal_and_leave_nothing() {
        let signal = Signal::default();
        let (mut first, gone) = (signal.listen(), signal.listen());
        drop(gone);
        assert_eq!(first.try_recv(), Ok(None));
        signal.tell();
        let mut late = signal.listen();
        assert_eq!((first.try_recv(), late.try_recv()), (Ok(Some(())), Ok(None)));
        assert_eq!(signal.0.lock().map(|of| of.len()).ok(), Some(1));
    }
}

//! What may wait for room in a volume's queue, done by a thread that may.

use tokio::runtime::Handle;

/// Something to be done, once: by being dropped.
struct Errand<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Errand<F> {
    fn drop(&mut self) {
        if let Some(errand) = self.0.take() {
            errand();
        }
    }
}

/// Does it on a thread of the runtime's that may wait. A runtime that has ended has none: then here.
pub(super) fn run(runtime: &Handle, errand: impl FnOnce() + Send + 'static) {
    let errand = Errand(Some(errand));
    drop(runtime.spawn_blocking(move || drop(errand)));
}

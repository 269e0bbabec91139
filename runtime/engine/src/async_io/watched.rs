//! Notices a function that blocks the stage it is called from. [ASY-01]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use levada_core::Clock;

use super::callable::{Answering, Answers};

/// How long a call, or a poll of its future, may take before it is said to block. What does not block takes microseconds; a
/// task that the machine has no time for may take milliseconds.
const BLOCKS_FROM: Duration = Duration::from_millis(100);

/// Measures what a function does in the stage's own task.
#[derive(Debug)]
pub(crate) struct Watch {
    uid: String,
    clock: Arc<dyn Clock>,
    blocking: AtomicU64,
}

impl Watch {
    pub(crate) fn new(uid: impl Into<String>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { uid: uid.into(), clock, blocking: AtomicU64::new(0) })
    }

    pub(crate) fn blocking(&self) -> u64 {
        self.blocking.load(Ordering::Relaxed)
    }

    /// Runs what must not block, and notes if it does.
    pub(crate) fn over<V>(&self, work: impl FnOnce() -> V) -> V {
        let began = self.clock.now();
        let done = work();
        let took = self.clock.now().since(began);
        if took >= BLOCKS_FROM {
            let times = self.blocking.fetch_add(1, Ordering::Relaxed) + 1;
            // The first time, and seldom after that: it may be so with every record.
            if times.is_power_of_two() {
                tracing::warn!(
                    uid = self.uid,
                    ?took,
                    times,
                    "an async function blocks its stage: give a client that blocks threads of its own (Blocking)"
                );
            }
        }
        done
    }
}

/// An answer that is on its way.
pub(crate) struct Watched<O> {
    answering: Answering<O>,
    watch: Arc<Watch>,
}

impl<O> Watched<O> {
    pub(crate) fn new(answering: Answering<O>, watch: Arc<Watch>) -> Self {
        Self { answering, watch }
    }
}

impl<O> Future for Watched<O> {
    type Output = Answers<O>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answers<O>> {
        let watched = &mut *self;
        watched.watch.over(|| watched.answering.as_mut().poll(context))
    }
}

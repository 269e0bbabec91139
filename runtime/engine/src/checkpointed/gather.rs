//! Fewer subtasks of a sink write than there are: what all subtasks have made is gathered at some.
//!
//! ```text
//!   task 0 ──┬▶ sink task 0   writes            barriers, watermarks and the end go to all,
//!   task 1 ──┤                                  so every subtask takes part in every checkpoint
//!   task 2 ──┘  sink task 1, 2: nothing comes
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::mpsc;

use super::inlet::Inlet;
use super::outlet::{CAPACITY, Outlet};

/// How many subtasks of a sink write, as the sink says at each start; all of them until it has said so.
#[derive(Debug, Clone, Default)]
pub(super) struct Writers(Arc<AtomicU32>);

impl Writers {
    /// Takes what a sink has said.
    pub(super) fn set(&self, writers: Option<u32>) {
        self.0.store(writers.unwrap_or(0), Ordering::SeqCst);
    }

    /// Returns how many of so many subtasks write, where these are fewer.
    pub(super) fn fewer_than(&self, parallelism: u32) -> Option<u32> {
        Some(self.0.load(Ordering::SeqCst)).filter(|writers| (1..parallelism).contains(writers))
    }
}

/// Wires `parallelism` tasks to as many sink tasks, of which the first `writers` get records. Each task sends all of its records to one of
/// these, so they stay in order.
pub(super) fn gathering<T>(parallelism: u32, writers: u32) -> (Vec<Outlet<T>>, Vec<Inlet<T>>) {
    let mut outlets: Vec<Vec<mpsc::Sender<_>>> = (0..parallelism).map(|_| Vec::new()).collect();
    let mut inlets = Vec::new();
    for _ in 0..parallelism {
        let channels = outlets.iter_mut().map(|to| {
            let (sender, receiver) = mpsc::channel(CAPACITY);
            to.push(sender);
            receiver
        });
        inlets.push(Inlet::new(channels.collect()));
    }
    let places = (0..writers as usize).cycle();
    let outlets = outlets.into_iter().zip(places).map(|(to, at)| Outlet::Gather { to, at });
    (outlets.collect(), inlets)
}

//! Whether sources wait for async steps that have taken more than they have room for.
//!
//! ```text
//!   source ─▶ ▮n+1 r9 r8 ─▶ step: r7 r6 r5 wait for room, a call is stuck       ▮n has overtaken them
//!     ▲                       │
//!     └── reads nothing ◀─────┘ until they have found room
//! ```
//!
//! So that a stuck call holds up no checkpoint, a step takes what stands in front of a barrier out of its channel, be there room for it
//! or not. Each checkpoint would take another channelful of what was read since the one before. While the sources wait, barriers
//! come alone: a step holds no more than what stood in front of two of them.

use std::sync::Arc;

use tokio::sync::watch;

/// Of each subtask of the source, how many steps it waits for.
#[derive(Debug, Clone)]
pub(crate) struct Backlogs(Arc<[watch::Sender<u32>]>);

impl Backlogs {
    pub(crate) fn new(parallelism: u32) -> Self {
        Self((0..parallelism).map(|_| watch::Sender::new(0)).collect())
    }

    /// What a subtask of the source waits for.
    pub(crate) fn ahead_of(&self, subtask: u32) -> Ahead {
        Ahead(self.0[subtask as usize].subscribe())
    }

    /// What one subtask of a step lets wait: its own subtask of the source, or all of them if it gets records of all.
    pub(crate) fn of_step(&self, subtask: u32, gets_all: bool) -> Backlog {
        let of = match gets_all {
            true => self.0.to_vec(),
            false => vec![self.0[subtask as usize].clone()],
        };
        Backlog { of, is_there: false }
    }
}

/// What one subtask of a step has taken beyond its room. None is there any more when this is dropped.
#[derive(Debug)]
pub(crate) struct Backlog {
    of: Vec<watch::Sender<u32>>,
    is_there: bool,
}

impl Backlog {
    /// A barrier has overtaken inputs that wait for room.
    pub(crate) fn begin(&mut self) {
        if !std::mem::replace(&mut self.is_there, true) {
            self.of.iter().for_each(|of| of.send_modify(|steps| *steps += 1));
        }
    }

    /// All have found room.
    pub(crate) fn end(&mut self) {
        if std::mem::replace(&mut self.is_there, false) {
            self.of.iter().for_each(|of| of.send_modify(|steps| *steps -= 1));
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether a subtask of the source is to wait.
#[derive(Debug)]
pub(crate) struct Ahead(watch::Receiver<u32>);

impl Ahead {
    pub(crate) fn is_clear(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Waits until it is. Cancel safe.
    pub(crate) async fn clears(&mut self) {
        // Where nobody is left to clear it, the attempt has ended.
        if self.0.wait_for(|steps| *steps == 0).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [ASY-08] whoever sends to the step waits, until every step has let go.
    #[test]
    fn source_waits_for_every_step_that_it_sends_to() {
        let backlogs = Backlogs::new(2);
        let (ahead, other) = (backlogs.ahead_of(0), backlogs.ahead_of(1));
        let (mut own, mut of_all) = (backlogs.of_step(0, false), backlogs.of_step(1, true));
        let clear = || (ahead.is_clear(), other.is_clear());
        own.begin();
        own.begin();
        assert_eq!(clear(), (false, true));
        of_all.begin();
        assert_eq!(clear(), (false, false));
        own.end();
        own.end();
        assert_eq!(clear(), (false, false));
        drop(of_all);
        assert_eq!(clear(), (true, true));
    }
}

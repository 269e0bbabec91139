//! Who goes on when async steps hold inputs that have moved from one subtask to another.
//!
//! ```text
//!   source ── waits ──▶ first step ── waits ──▶ last step: calls what it holds
//!      ▲ last                 ▲ then                │ has left
//!      └──────────────────────┴─────────────────────┘
//! ```
//!
//! At the parallelism of before, what is new comes to the subtask that holds the older inputs, behind them. At another one it comes
//! to any, and would overtake them. So each waits until whatever stands behind it has let go of what it held. A checkpoint in
//! between says of them that they have moved, so a restart at the new parallelism goes on to wait.

use std::sync::Arc;

use tokio::sync::watch;

/// The async steps with inputs that have moved, from the source on.
#[derive(Debug, Clone)]
pub(crate) struct Restoring {
    steps: Arc<[String]>,
    /// How many subtasks of each still hold some.
    holding: Arc<watch::Sender<Vec<u32>>>,
}

impl Restoring {
    pub(crate) fn new(steps: Vec<String>, parallelism: u32) -> Self {
        let holding = watch::Sender::new(vec![parallelism; steps.len()]);
        Self { steps: steps.into(), holding: Arc::new(holding) }
    }

    /// What the source waits for.
    pub(crate) fn turn_of_source(&self) -> Turn {
        self.turn(0)
    }

    /// What a subtask of an async step waits for, and what it lets go of itself, if there is any.
    pub(crate) fn turn_of(&self, uid: &str) -> (Turn, Option<Holding>) {
        match self.steps.iter().position(|step| step == uid) {
            Some(step) => (self.turn(step + 1), Some(Holding { of: self.clone(), step })),
            None => (self.turn(self.steps.len()), None),
        }
    }

    fn turn(&self, behind: usize) -> Turn {
        Turn { holding: self.holding.subscribe(), behind, has_come: false }
    }
}

/// One subtask that may hold something. It lets go of it when this is dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    of: Restoring,
    step: usize,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.of.holding.send_modify(|holding| holding[self.step] -= 1);
    }
}

/// Whether everything behind somebody has let go.
#[derive(Debug)]
pub(crate) struct Turn {
    holding: watch::Receiver<Vec<u32>>,
    behind: usize,
    has_come: bool,
}

impl Turn {
    pub(crate) fn has_come(&mut self) -> bool {
        self.has_come = self.has_come || is_free(&self.holding.borrow(), self.behind);
        self.has_come
    }

    /// Waits for it. Cancel safe.
    pub(crate) async fn comes(&mut self) {
        let behind = self.behind;
        // Where nobody is left to let go, the attempt has ended.
        if self.holding.wait_for(|holding| is_free(holding, behind)).await.is_err() {
            std::future::pending::<()>().await;
        }
        self.has_come = true;
    }
}

fn is_free(holding: &[u32], behind: usize) -> bool {
    holding[behind..].iter().all(|subtasks| *subtasks == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [ASY-08] the last step first, and the source last.
    #[test]
    fn each_waits_for_whatever_stands_behind_it() {
        let restoring = Restoring::new(vec!["first".into(), "last".into()], 2);
        let (mut first, of_first) = restoring.turn_of("first");
        let (mut last, of_last) = restoring.turn_of("last");
        let (_, other_of_first) = restoring.turn_of("first");
        let (_, other_of_last) = restoring.turn_of("last");
        let mut source = restoring.turn_of_source();
        let mut turns = || (last.has_come(), first.has_come(), source.has_come());
        assert_eq!(turns(), (true, false, false));
        drop((of_last, of_first));
        assert_eq!(turns(), (true, false, false));
        drop(other_of_last);
        assert_eq!(turns(), (true, true, false));
        drop(other_of_first);
        assert_eq!(turns(), (true, true, true));
    }

    #[test]
    fn nobody_waits_where_nothing_has_moved() {
        let restoring = Restoring::new(Vec::new(), 2);
        let (mut turn, holding) = restoring.turn_of("step");
        assert!(turn.has_come() && holding.is_none() && restoring.turn_of_source().has_come());
    }
}

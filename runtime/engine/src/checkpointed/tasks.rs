//! The tasks of an attempt, each with the subtask that it is of.

use std::collections::HashMap;
use std::future::{Future, pending};

use tokio::task::{Id, JoinSet};

use crate::error::JobError;

#[derive(Debug, Default)]
pub(crate) struct Tasks {
    running: JoinSet<()>,
    subtasks: HashMap<Id, u32>,
}

impl Tasks {
    pub(crate) fn spawn(&mut self, subtask: u32, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(task).id();
        self.subtasks.insert(id, subtask);
    }

    /// Waits until one dies of a panic, for ever if none does. It has told nobody, and its neighbours notice only when they
    /// have something to send. Cancel safe.
    pub(super) async fn panicked(&mut self) -> JobError {
        while let Some(ended) = self.running.join_next_with_id().await {
            // One that was cancelled from outside: the runtime shuts down. One that has come to its end has told why.
            if let Err(error) = ended
                && error.is_panic()
            {
                let subtask = self.subtasks.get(&error.id()).copied().unwrap_or_default();
                return JobError::Panicked { subtask };
            }
        }
        pending().await
    }

    /// Waits until all have ended.
    pub(super) async fn ended(&mut self) {
        while self.running.join_next().await.is_some() {}
    }
}

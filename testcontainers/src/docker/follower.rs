//! Following the output of a container into a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use futures_util::StreamExt;
use testcontainers::bollard::Docker;
use testcontainers::bollard::query_parameters::LogsOptionsBuilder;
use tokio::task::JoinHandle;

use super::engine::{runtime, wait_on};
use crate::Error;
use crate::error::Doing;

/// A task that appends the output of one run of a container to a file. It ends when the run has ended and all its output
/// is in the file.
#[derive(Debug)]
pub(super) struct Follower {
    task: JoinHandle<u64>,
}

impl Follower {
    /// Follows the container's present run. The engine tells the output of all runs; of that, `seen` bytes are in the
    /// file already.
    pub(super) fn start(client: &Docker, container: &str, file: &Path, seen: u64) -> Result<Follower, Error> {
        let log = OpenOptions::new().create(true).append(true).open(file).doing("open the log", file)?;
        let task = runtime()?.spawn(follow(client.clone(), container.to_owned(), log, seen));
        Ok(Follower { task })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits for the end and returns how many bytes of output the container has made in all its runs.
    pub(super) fn join(self) -> Result<u64, Error> {
        // A follower that panicked has shown it; at worst its output is shown twice.
        wait_on(async move { self.task.await.unwrap_or_default() })
    }
}

async fn follow(client: Docker, container: String, mut log: File, seen: u64) -> u64 {
    let options = LogsOptionsBuilder::new().follow(true).stdout(true).stderr(true).build();
    let mut output = Box::pin(client.logs(&container, Some(options)));
    let mut told = 0_u64;
    while let Some(Ok(chunk)) = output.next().await {
        let bytes = chunk.as_ref();
        // A chunk is a line at most.
        let fresh = usize::try_from(seen.saturating_sub(told))
            .map_or(&[][..], |old| bytes.get(old..).unwrap_or_default());
        told = told.saturating_add(bytes.len() as u64);
        // A log that cannot be written must not hold up the server.
        log.write_all(fresh).ok();
    }
    told.max(seen)
}

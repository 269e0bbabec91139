//! Following the output of a container into a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use testcontainers::bollard::Docker;
use testcontainers::bollard::query_parameters::LogsOptionsBuilder;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::engine::{runtime, wait_on};
use crate::Error;
use crate::error::Doing;

/// How long the last output may take to come after the end of a container.
const PATIENCE: Duration = Duration::from_secs(10);

/// A task that appends the output of one run of a container to a file. It ends when the run has ended and all its output
/// is in the file.
#[derive(Debug)]
pub(super) struct Follower {
    task: JoinHandle<()>,
    /// How many bytes of output the engine has told, in all runs.
    told: Arc<AtomicU64>,
}

impl Follower {
    /// Follows the container's present run. The engine tells the output of all runs; of that, `seen` bytes are in the
    /// file already.
    pub(super) fn start(client: &Docker, container: &str, file: &Path, seen: u64) -> Result<Follower, Error> {
        let log = OpenOptions::new().create(true).append(true).open(file).doing("open the log", file)?;
        let told = Arc::new(AtomicU64::new(0));
        let following = follow(client.clone(), container.to_owned(), log, seen, Arc::clone(&told));
        Ok(Follower { task: runtime()?.spawn(following), told })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits for the end and returns how many bytes of output the container has made in all its runs.
    pub(super) fn join(self) -> Result<u64, Error> {
        let Follower { mut task, told } = self;
        wait_on(async move {
            if timeout(PATIENCE, &mut task).await.is_err() {
                task.abort();
            }
        })?;
        Ok(told.load(Ordering::Relaxed))
    }
}

async fn follow(client: Docker, container: String, mut log: File, seen: u64, told: Arc<AtomicU64>) {
    let options = LogsOptionsBuilder::new().follow(true).stdout(true).stderr(true).build();
    let mut output = Box::pin(client.logs(&container, Some(options)));
    while let Some(Ok(chunk)) = output.next().await {
        let bytes = chunk.as_ref();
        let before = told.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        // A log that cannot be written must not hold up the server.
        log.write_all(unseen(bytes, before, seen)).ok();
    }
}

/// Returns what follows the first `seen` bytes of all output, of a chunk that begins after `before` bytes of it.
fn unseen(chunk: &[u8], before: u64, seen: u64) -> &[u8] {
    let old = usize::try_from(seen.saturating_sub(before)).unwrap_or(usize::MAX);
    chunk.get(old..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::unseen;

    #[test]
    fn what_an_earlier_run_has_written_is_not_written_again() {
        assert_eq!(unseen(b"abc", 0, 0), b"abc");
        assert_eq!(unseen(b"abc", 0, 5), b"");
        assert_eq!(unseen(b"def", 3, 5), b"f");
        assert_eq!(unseen(b"ghi", 6, 5), b"ghi");
    }
}

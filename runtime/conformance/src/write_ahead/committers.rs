//! The committer alone.

use levada_core::template::{CheckpointCommitter, Marker, Segment, WriteAheadSink};
use levada_core::{CheckpointId, SinkError, Timestamp};

use super::{SCENARIOS, WriteAheadTarget};
use crate::failure::{Failure, Finding};
use crate::job::{UID, context};
use crate::stage::Stage;

fn must<V>(step: &str, outcome: Result<V, SinkError>) -> Result<V, Finding> {
    outcome.map_err(|error| Finding::refused(step, error))
}

/// Markers that differ in one thing each: in each of them another committer could fail to look.
fn neighbours(marker: &Marker) -> Vec<Marker> {
    let checkpoint =
        |attempt, sequence| Marker { checkpoint: CheckpointId::new(attempt, sequence), ..marker.clone() };
    vec![
        checkpoint(1, 2),
        checkpoint(1, 4),
        checkpoint(2, 3),
        checkpoint(13, 3),
        Marker { subtask: 1, ..marker.clone() },
        Marker { subtask: 10, ..marker.clone() },
        Marker { uid: format!("{}-2", marker.uid), ..marker.clone() },
        Marker { job: format!("{}-2", marker.job), ..marker.clone() },
    ]
}

/// Opens the sinks of processes that follow each other.
struct Processes<'a, T> {
    target: &'a T,
    attempt: u64,
}

impl<T: WriteAheadTarget> Processes<'_, T> {
    /// Opens a sink with its committer, as a driver does.
    async fn next(&mut self, job: &str, uid: &str) -> Result<(T::Sink, T::Committer), Finding> {
        self.attempt += 1;
        let Some((mut sink, mut committer)) = self.target.sinks(1).pop() else {
            return Err(Finding::answer("one sink", "a sink", "none"));
        };
        must("open", sink.open(context(job, 0, 1)).await)?;
        must("open the committer", committer.open(&context(job, 0, 1)).await)?;
        must("fence earlier openings", committer.fence(uid, CheckpointId::new(self.attempt, 1)).await)?;
        Ok((sink, committer))
    }

    /// Lets a process that knows nothing of earlier ones answer.
    async fn is_committed(&mut self, marker: &Marker, expected: bool) -> Result<(), Finding> {
        let (_sink, mut committer) = self.next(&marker.job, &marker.uid).await?;
        let found = must("tell of a marker", committer.is_committed(marker).await)?;
        if found == expected {
            return Ok(());
        }
        Err(Finding::answer(format!("whether {marker} is committed"), expected, found))
    }

    /// Sends a segment of one record with its marker.
    async fn mark(&mut self, marker: &Marker, number: u64) -> Result<(), Finding> {
        let (mut sink, mut committer) = self.next(&marker.job, &marker.uid).await?;
        let records = vec![self.target.item(number)];
        let segment = Segment { marker: marker.clone(), time: Timestamp(0), records };
        if !must("send a segment", sink.send(&segment).await)? {
            return Err(Finding::refused("send a segment", "it answered that it did not take it"));
        }
        match committer.shares_transaction() {
            true => Ok(()),
            false => must("note a marker", committer.commit(marker).await),
        }
    }
}

/// A marker is there for every later process, and none beside it: of another subtask, checkpoint, sink or job. What is
/// forgotten takes no other with it.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn markers_outlive_their_process_and_are_not_confused<T: WriteAheadTarget>(
    target: &T,
) -> Result<(), Failure> {
    let stage = Stage::new("markers_outlive_their_process_and_are_not_confused", SCENARIOS);
    stage
        .run(async |_fuse, job, range| {
            let marker = Marker { job, uid: UID.to_owned(), subtask: 0, checkpoint: CheckpointId::new(1, 3) };
            let others = neighbours(&marker);
            // Above every checkpoint of a marker: these are all of earlier openings.
            let mut processes = Processes { target, attempt: 100 };
            processes.is_committed(&marker, false).await?;
            processes.mark(&marker, range.number(1)).await?;
            for other in &others {
                processes.is_committed(other, false).await?;
            }
            processes.is_committed(&marker, true).await?;
            // A later one of the same subtask, and then the earlier one is forgotten.
            processes.mark(&others[1], range.number(2)).await?;
            processes.is_committed(&marker, true).await?;
            let (_sink, mut committer) = processes.next(&marker.job, &marker.uid).await?;
            must("forget a marker", committer.forget(std::slice::from_ref(&marker)).await)?;
            processes.is_committed(&others[1], true).await
        })
        .await
}

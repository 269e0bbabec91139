//! The committer alone.

use levada_core::template::{CheckpointCommitter, Marker, Segment, WriteAheadSink};
use levada_core::{CheckpointId, ErrorClass, SinkError, Timestamp};

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

    /// Sends a segment of one record with its marker, in a process that starts now.
    async fn mark(&mut self, marker: &Marker, number: u64) -> Result<(), Finding> {
        let mut opened = self.next(&marker.job, &marker.uid).await?;
        must("send a segment and note its marker", self.mark_by(&mut opened, marker, number).await)
    }

    /// The same in a process that is there.
    async fn mark_by(
        &self,
        (sink, committer): &mut (T::Sink, T::Committer),
        marker: &Marker,
        number: u64,
    ) -> Result<(), SinkError> {
        let records = vec![self.target.item(number)];
        let segment = Segment { marker: marker.clone(), time: Timestamp(0), records };
        if !sink.send(&segment).await? {
            return Err(SinkError::new(ErrorClass::Fatal, "it answered that it did not take it"));
        }
        match committer.shares_transaction() {
            true => Ok(()),
            false => committer.commit(marker).await,
        }
    }
}

/// A process stands still, is taken over, and goes on: it may be refused or not, but it takes no marker of the later one away.
/// What it was refused is not visible, where the marker is committed with the data, and what it has noted is there for everyone.
///
/// # Errors
/// The sink or its committer does something else.
pub async fn woken_opening_takes_no_marker_of_a_later_one_away<T: WriteAheadTarget>(
    target: &T,
) -> Result<(), Failure> {
    let stage = Stage::new("woken_opening_takes_no_marker_of_a_later_one_away", SCENARIOS);
    stage
        .run(async |fuse, job, range| {
            let marker = |sequence| {
                let (job, uid, checkpoint) = (job.clone(), UID.to_owned(), CheckpointId::new(1, sequence));
                Marker { job, uid, subtask: 0, checkpoint }
            };
            let mut processes = Processes { target, attempt: 100 };
            let mut woken = processes.next(&job, UID).await?;
            let marked = processes.mark_by(&mut woken, &marker(1), range.number(1)).await;
            must("send a segment and note its marker", marked)?;
            must("tell of a marker", woken.1.is_committed(&marker(3)).await)?;
            processes.mark(&marker(2), range.number(2)).await?;
            fuse.note("the process before it, which was taken for dead, goes on");
            let noted = processes.mark_by(&mut woken, &marker(3), range.number(3)).await;
            for sequence in [1, 2] {
                processes.is_committed(&marker(sequence), true).await?;
            }
            if noted.is_ok() {
                return processes.is_committed(&marker(3), true).await;
            }
            let seen = range.records(target.visible().await.map_err(Finding::Target)?);
            match woken.1.shares_transaction() && seen.contains(&3) {
                true => Err(Finding::Early { records: vec![3] }),
                false => Ok(()),
            }
        })
        .await
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

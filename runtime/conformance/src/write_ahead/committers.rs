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
            is_committed(target, &marker, false).await?;
            mark(target, &marker, range.number(1)).await?;
            for other in &others {
                is_committed(target, other, false).await?;
            }
            is_committed(target, &marker, true).await?;
            // A later one of the same subtask, and then the earlier one is forgotten.
            mark(target, &others[1], range.number(2)).await?;
            is_committed(target, &marker, true).await?;
            let (_sink, mut committer) = opened(target, &marker.job).await?;
            must("forget a marker", committer.forget(std::slice::from_ref(&marker)).await)?;
            is_committed(target, &others[1], true).await
        })
        .await
}

async fn opened<T: WriteAheadTarget>(target: &T, job: &str) -> Result<(T::Sink, T::Committer), Finding> {
    let Some((mut sink, mut committer)) = target.sinks(1).pop() else {
        return Err(Finding::answer("one sink", "a sink", "none"));
    };
    must("open", sink.open(context(job, 0, 1)).await)?;
    must("open the committer", committer.open(&context(job, 0, 1)).await)?;
    Ok((sink, committer))
}

/// Lets a process that knows nothing of earlier ones answer.
async fn is_committed<T: WriteAheadTarget>(
    target: &T,
    marker: &Marker,
    expected: bool,
) -> Result<(), Finding> {
    let (_sink, mut committer) = opened(target, &marker.job).await?;
    let found = must("tell of a marker", committer.is_committed(marker).await)?;
    if found == expected {
        return Ok(());
    }
    Err(Finding::answer(format!("whether {marker} is committed"), expected, found))
}

/// Sends a segment of one record with its marker.
async fn mark<T: WriteAheadTarget>(target: &T, marker: &Marker, number: u64) -> Result<(), Finding> {
    let (mut sink, mut committer) = opened(target, &marker.job).await?;
    let segment = Segment { marker: marker.clone(), time: Timestamp(0), records: vec![target.item(number)] };
    if !must("send a segment", sink.send(&segment).await)? {
        return Err(Finding::refused("send a segment", "it answered that it did not take it"));
    }
    match committer.shares_transaction() {
        true => Ok(()),
        false => must("note a marker", committer.commit(marker).await),
    }
}

//! The verbs called one by one, as a driver may come to call them.

use levada_core::template::{Fate, TransactionName, TwoPhaseCommitSink};
use levada_core::{CheckpointId, SinkError, Storable};

use super::kind::{check_left_over, seen};
use super::wrapped::Wrapped;
use super::{SCENARIOS, TwoPhaseTarget};
use crate::failure::{Failure, Finding};
use crate::fuse::Fuse;
use crate::job::context;
use crate::numbers::{Range, TIMES, batch};
use crate::stage::Stage;

type Handle<T> = <<T as TwoPhaseTarget>::Sink as TwoPhaseCommitSink<<T as TwoPhaseTarget>::Item>>::Handle;

/// Calls the sinks of one job.
struct Caller<'a, T> {
    target: &'a T,
    fuse: Fuse,
    job: String,
    range: Range,
}

fn name(attempt: u64, sequence: u64, subtask: u32) -> TransactionName {
    TransactionName { subtask, checkpoint: CheckpointId::new(attempt, sequence) }
}

fn must<V>(step: &str, outcome: Result<V, SinkError>) -> Result<V, Finding> {
    outcome.map_err(|error| Finding::refused(step, error))
}

impl<'a, T: TwoPhaseTarget> Caller<'a, T> {
    /// Opens the sink of a process that starts now.
    async fn opened(&self, job: &str) -> Result<Wrapped<T::Sink>, Finding> {
        self.fuse.note(format!("another process, for job {job}"));
        let Some(sink) = self.target.sinks(1).pop() else {
            return Err(Finding::answer("one sink", "a sink", "none"));
        };
        let mut sink = Wrapped { sink, fuse: self.fuse.clone() };
        must("open", sink.open(context(job, 0, 1)).await)?;
        Ok(sink)
    }

    async fn sink(&self) -> Result<Wrapped<T::Sink>, Finding> {
        self.opened(&self.job).await
    }

    /// Begins a transaction and writes records into it.
    async fn begun(
        &self,
        sink: &mut Wrapped<T::Sink>,
        name: &TransactionName,
        records: std::ops::RangeInclusive<u64>,
    ) -> Result<Handle<T>, Finding> {
        let mut handle = must("begin", sink.begin(name).await)?;
        let items = records.map(|record| self.target.item(self.range.number(record))).collect();
        must("write", sink.write(&mut handle, batch(items), &TIMES).await)?;
        Ok(handle)
    }

    async fn pre_committed(
        &self,
        sink: &mut Wrapped<T::Sink>,
        name: &TransactionName,
        records: std::ops::RangeInclusive<u64>,
    ) -> Result<Handle<T>, Finding> {
        let mut handle = self.begun(sink, name, records).await?;
        must("pre-commit", sink.pre_commit(&mut handle).await)?;
        Ok(handle)
    }

    /// Checks that exactly these records are visible, each once.
    async fn sees(&self, expected: &[u64]) -> Result<(), Finding> {
        let mut seen = seen(self.target, self.range).await?;
        self.fuse.note(format!("visible: {seen:?}"));
        crate::ledger::Ledger::check_once(&seen)?;
        seen.sort_unstable();
        let early = seen.iter().copied().filter(|record| !expected.contains(record)).collect::<Vec<_>>();
        if !early.is_empty() {
            return Err(Finding::Early { records: early });
        }
        let lost = expected.iter().copied().filter(|record| !seen.contains(record)).collect::<Vec<_>>();
        if lost.is_empty() { Ok(()) } else { Err(Finding::Lost { records: lost }) }
    }
}

async fn run<'a, T: TwoPhaseTarget>(
    target: &'a T,
    scenario: &'static str,
    steps: impl AsyncFnOnce(Caller<'a, T>) -> Result<(), Finding>,
) -> Result<(), Failure> {
    let stage = Stage::new(scenario, SCENARIOS);
    stage.run(async |fuse, job, range| steps(Caller { target, fuse, job, range }).await).await
}

fn restored<H: Storable>(handle: &H) -> Result<H, Finding> {
    let mut stored = Vec::new();
    handle.store(&mut stored);
    H::load(H::VERSION, &stored).map_err(|error| Finding::refused("read a handle back", error))
}

/// A commit is repeated by the same sink, by one of another process, and when a later transaction is committed already.
///
/// # Errors
/// The sink does something else.
pub async fn commit_can_be_repeated_by_anyone<T: TwoPhaseTarget>(target: &T) -> Result<(), Failure> {
    run(target, "commit_can_be_repeated_by_anyone", async |at: Caller<'_, T>| {
        let mut sink = at.sink().await?;
        let first = at.pre_committed(&mut sink, &name(1, 1, 0), 1..=3).await?;
        let second = at.pre_committed(&mut sink, &name(1, 2, 0), 4..=5).await?;
        must("commit", sink.commit(&first).await)?;
        must("commit once more", sink.commit(&first).await)?;
        at.sees(&[1, 2, 3]).await?;
        must("commit", sink.commit(&second).await)?;
        must("commit an earlier one once more", sink.commit(&first).await)?;
        let mut other = at.sink().await?;
        must("commit what another process has committed", other.commit(&restored(&first)?).await)?;
        must("commit what another process has committed", other.commit(&restored(&second)?).await)?;
        sink.close().await;
        at.sees(&[1, 2, 3, 4, 5]).await
    })
    .await
}

/// What is left of a process is the stored handle: one that never saw the transaction commits it.
///
/// # Errors
/// The sink does something else.
pub async fn stored_handle_is_enough_to_commit<T: TwoPhaseTarget>(target: &T) -> Result<(), Failure> {
    run(target, "stored_handle_is_enough_to_commit", async |at: Caller<'_, T>| {
        let mut sink = at.sink().await?;
        let handle = at.pre_committed(&mut sink, &name(1, 1, 0), 1..=4).await?;
        let handle = restored(&handle)?;
        // Stored again by a process that has not come to commit it.
        let handle = restored(&handle)?;
        drop(sink);
        at.sees(&[]).await?;
        let mut other = at.sink().await?;
        must("commit by the stored handle", other.commit(&handle).await)?;
        at.sees(&[1, 2, 3, 4]).await
    })
    .await
}

/// An abort is repeated, by the same sink and by others, of open and of pre-committed transactions, and of ones that the
/// target does not know any more.
///
/// # Errors
/// The sink does something else.
pub async fn abort_can_be_repeated_by_anyone<T: TwoPhaseTarget>(target: &T) -> Result<(), Failure> {
    run(target, "abort_can_be_repeated_by_anyone", async |at: Caller<'_, T>| {
        let mut sink = at.sink().await?;
        let mut other = at.sink().await?;
        let open = at.begun(&mut sink, &name(1, 1, 0), 1..=2).await?;
        must("abort an open transaction", sink.abort(&open).await)?;
        must("abort it once more", sink.abort(&open).await)?;
        must("abort a transaction that is gone", other.abort(&restored(&open)?).await)?;
        let waiting = at.pre_committed(&mut sink, &name(1, 2, 0), 3..=4).await?;
        must(
            "abort a pre-committed transaction of another process",
            other.abort(&restored(&waiting)?).await,
        )?;
        must("abort it once more", other.abort(&waiting).await)?;
        must("abort what another process has aborted", sink.abort(&waiting).await)?;
        at.sees(&[]).await?;
        // The sink goes on.
        let next = at.pre_committed(&mut sink, &name(1, 3, 0), 5..=5).await?;
        must("commit", sink.commit(&next).await)?;
        at.sees(&[5]).await?;
        check_left_over(target).await
    })
    .await
}

/// The records of an aborted transaction are gone, so its commit is an error, and none that is tried again.
///
/// # Errors
/// The sink does something else.
pub async fn dropped_transaction_is_never_committed_silently<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    run(target, "dropped_transaction_is_never_committed_silently", async |at: Caller<'_, T>| {
        let mut sink = at.sink().await?;
        let handle = at.pre_committed(&mut sink, &name(1, 1, 0), 1..=2).await?;
        must("abort", sink.abort(&handle).await)?;
        drop(sink);
        check_loss(&at, &handle).await
    })
    .await
}

/// The target loses a transaction by itself, if it ever does.
///
/// # Errors
/// The sink does something else.
pub async fn lost_transaction_is_never_committed_silently<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    run(target, "lost_transaction_is_never_committed_silently", async |at: Caller<'_, T>| {
        let mut sink = at.sink().await?;
        let handle = at.pre_committed(&mut sink, &name(1, 1, 0), 1..=2).await?;
        drop(sink);
        at.fuse.note("the target loses the transaction");
        if !target.lose(&handle).await.map_err(Finding::Target)? {
            return must("abort", at.sink().await?.abort(&handle).await);
        }
        let mut other = at.sink().await?;
        let fates = must("inspect", other.inspect(std::slice::from_ref(&handle)).await)?;
        if let Some(fates) = fates
            && !matches!(fates[..], [Fate::Aborted | Fate::Unknown])
        {
            return Err(Finding::answer("the fate of a lost transaction", [Fate::Aborted], fates));
        }
        check_loss(&at, &handle).await
    })
    .await
}

async fn check_loss<T: TwoPhaseTarget>(at: &Caller<'_, T>, handle: &Handle<T>) -> Result<(), Finding> {
    let committed = at.sink().await?.commit(&restored(handle)?).await;
    at.sees(&[]).await?;
    match committed {
        Ok(()) if at.target.tells_loss() => {
            Err(Finding::Accepted { step: String::from("commit a transaction whose records are gone") })
        }
        Err(error) if error.class.is_retriable() => {
            Err(Finding::answer("the class of a loss", "one that is not tried again", error.class))
        }
        _ => Ok(()),
    }
}

/// A sink that can be asked knows pending, committed and aborted transactions apart.
///
/// # Errors
/// The sink does something else.
pub async fn inspection_tells_what_became_of_each_transaction<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    run(target, "inspection_tells_what_became_of_each_transaction", async |at: Caller<'_, T>| {
        let mut sink = at.sink().await?;
        let mut handles = Vec::new();
        for sequence in 1..=3 {
            handles.push(at.pre_committed(&mut sink, &name(1, sequence, 0), sequence..=sequence).await?);
        }
        must("commit", sink.commit(&handles[0]).await)?;
        must("abort", sink.abort(&handles[1]).await)?;
        drop(sink);
        let fates = must("inspect", at.sink().await?.inspect(&handles).await)?;
        must("abort", at.sink().await?.abort(&handles[2]).await)?;
        let Some(fates) = fates else { return Ok(()) };
        let is_right = |(place, fate): (usize, &Fate)| match place {
            0 => *fate == Fate::Committed,
            1 => matches!(fate, Fate::Aborted | Fate::Unknown),
            _ => *fate == Fate::Pending,
        };
        if fates.len() != handles.len() || !fates.iter().enumerate().all(is_right) {
            let expected = [Fate::Committed, Fate::Aborted, Fate::Pending];
            return Err(Finding::answer("the fates of three transactions", expected, fates));
        }
        Ok(())
    })
    .await
}

/// A new process fences: what it keeps can be committed, everything else of the job is gone, also of subtasks that there
/// are no more, and also when an earlier process goes on with it.
///
/// # Errors
/// The sink does something else.
pub async fn fence_spares_what_is_kept_and_ends_the_rest<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    if !target.fences() {
        return Ok(());
    }
    run(target, "fence_spares_what_is_kept_and_ends_the_rest", async |at: Caller<'_, T>| {
        let mut earlier = at.sink().await?;
        let kept = at.pre_committed(&mut earlier, &name(1, 1, 0), 1..=2).await?;
        let kept_of_high = at.pre_committed(&mut earlier, &name(1, 1, 7), 3..=3).await?;
        let refused = at.pre_committed(&mut earlier, &name(1, 2, 0), 4..=5).await?;
        let refused_of_high = at.pre_committed(&mut earlier, &name(1, 2, 7), 6..=6).await?;
        let mut open = at.begun(&mut earlier, &name(1, 3, 0), 7..=8).await?;

        let mut later = at.sink().await?;
        let kept = [restored(&kept)?, restored(&kept_of_high)?];
        let first = CheckpointId::new(2, 1);
        must("fence", later.fence(first, &kept).await)?;
        must("fence once more", later.fence(first, &kept).await)?;
        at.fuse.note("the earlier process, which was taken for dead, goes on");
        // Whether it notices is its own business; that nothing of this becomes visible is not.
        let _ = earlier.pre_commit(&mut open).await;
        for zombies in [&open, &refused, &refused_of_high] {
            let _ = earlier.commit(zombies).await;
        }
        at.sees(&[]).await?;
        for kept in &kept {
            must("commit what a fence has kept", later.commit(kept).await)?;
        }
        at.sees(&[1, 2, 3]).await?;
        let next = at.pre_committed(&mut later, &name(2, 1, 0), 9..=9).await?;
        must("commit", later.commit(&next).await)?;
        at.sees(&[1, 2, 3, 9]).await?;
        check_left_over(target).await
    })
    .await
}

/// A process stands still just before its fence, is taken over, and fences when it wakes up: what the later one has begun and
/// pre-committed meanwhile goes on. Attempts and checkpoints compare as numbers, so one of two digits is above one of one.
///
/// # Errors
/// The sink does something else.
pub async fn woken_fence_spares_what_later_attempts_have_begun<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    run(target, "woken_fence_spares_what_later_attempts_have_begun", async |at: Caller<'_, T>| {
        let mut earlier = at.sink().await?;
        let kept = at.pre_committed(&mut earlier, &name(8, 1, 0), 1..=2).await?;
        let mut woken = at.sink().await?;

        let mut later = at.sink().await?;
        must("fence", later.fence(CheckpointId::new(10, 1), std::slice::from_ref(&kept)).await)?;
        must("commit what a fence has kept", later.commit(&kept).await)?;
        let waiting = at.pre_committed(&mut later, &name(10, 1, 0), 3..=4).await?;
        let waiting_of_high = at.pre_committed(&mut later, &name(10, 1, 7), 5..=5).await?;
        let mut open = at.begun(&mut later, &name(10, 2, 0), 6..=7).await?;
        at.fuse.note("the process before it, which was taken for dead, goes on with its start");
        // It may notice that it was taken over; what it may not do is end the later one's transactions.
        let _ = woken.fence(CheckpointId::new(9, 1), std::slice::from_ref(&kept)).await;
        must("pre-commit beside an earlier attempt's fence", later.pre_commit(&mut open).await)?;
        for handle in [&waiting, &waiting_of_high, &open] {
            must(
                "commit behind an earlier attempt's fence",
                at.sink().await?.commit(&restored(handle)?).await,
            )?;
        }
        at.sees(&[1, 2, 3, 4, 5, 6, 7]).await?;
        check_left_over(target).await
    })
    .await
}

/// A job is restarted in its process, and goes on with the checkpoints of the same attempt: its fence ends what was named
/// below the first one to come, and nothing from there on.
///
/// # Errors
/// The sink does something else.
pub async fn fence_of_a_restart_ends_what_its_own_attempt_has_left<T: TwoPhaseTarget>(
    target: &T,
) -> Result<(), Failure> {
    if !target.fences() {
        return Ok(());
    }
    run(target, "fence_of_a_restart_ends_what_its_own_attempt_has_left", async |at: Caller<'_, T>| {
        let mut before = at.sink().await?;
        at.pre_committed(&mut before, &name(1, 9, 0), 1..=2).await?;
        before.close().await;
        let mut behind = at.sink().await?;
        let next = at.pre_committed(&mut behind, &name(1, 10, 0), 3..=4).await?;
        must("fence", at.sink().await?.fence(CheckpointId::new(1, 10), &[]).await)?;
        must("commit what is named from the first checkpoint on", behind.commit(&next).await)?;
        at.sees(&[3, 4]).await?;
        check_left_over(target).await
    })
    .await
}

/// A job whose name begins with another's is another job.
///
/// # Errors
/// The sink does something else.
pub async fn fence_leaves_other_jobs_alone<T: TwoPhaseTarget>(target: &T) -> Result<(), Failure> {
    run(target, "fence_leaves_other_jobs_alone", async |at: Caller<'_, T>| {
        let neighbours = ["-bar", ".bar", "_bar", "2", "-1", ".1", ".1-2"];
        let mut waiting = Vec::new();
        for (place, ending) in neighbours.iter().enumerate() {
            let mut sink = at.opened(&format!("{}{ending}", at.job)).await?;
            let first = 2 * place as u64 + 1;
            let handle = at.pre_committed(&mut sink, &name(1, 1, 0), first..=first).await?;
            let open = at.begun(&mut sink, &name(1, 2, 0), first + 1..=first + 1).await?;
            waiting.push((sink, handle, open));
        }
        must("fence", at.sink().await?.fence(CheckpointId::new(2, 1), &[]).await)?;
        for (sink, handle, open) in &mut waiting {
            must("commit beside another job's fence", sink.commit(handle).await)?;
            must("pre-commit beside another job's fence", sink.pre_commit(open).await)?;
            must("commit beside another job's fence", sink.commit(open).await)?;
        }
        let all = (1..=2 * neighbours.len() as u64).collect::<Vec<_>>();
        at.sees(&all).await?;
        check_left_over(target).await
    })
    .await
}

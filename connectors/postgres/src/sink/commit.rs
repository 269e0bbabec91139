//! One attempt at a flush: a transaction whose statements are all sent before the first answer is awaited.
//!
//! ```text
//!   ── begin ─▶                (sent first and awaited while nothing else waits: see below)
//!   ── leads ─▶                move positions, or write a marker: fail in the server unless this may be
//!   ── lock, delete ─▶
//!   ── insert … ─▶             one per column set and chunk
//!   ── commit ─▶
//!                ◀─ answers, in order
//! ```
//!
//! If a statement fails, the server refuses the ones behind it and answers the final `commit` with a rollback. The
//! driver does not show that answer's tag, and does not call it an error; therefore a commit counts only if *every*
//! statement before it succeeded, and each answer is looked at.
//!
//! `begin` alone is awaited before the rest is sent. If it failed (cancelled, for example) with the rest on its way,
//! each statement would be a transaction of its own.

use levada_core::{Position, SplitId};
use tokio_postgres::types::ToSql;

use super::claim::SplitArrays;
use super::error::Failure;
use super::failpoint::{self, Points, fail_point};
use super::session::{Session, Step, answered, pipelined};
use super::sql;
use super::statement::Work;

/// A position that moves.
#[derive(Debug, Clone)]
pub(crate) struct Move {
    pub(crate) split: SplitId,
    pub(crate) epoch: i64,
    pub(crate) from: Position,
    pub(crate) to: Position,
}

/// A statement in front of the data. It fails in the server unless the transaction may be, so that the rest can follow it
/// unseen.
#[derive(Debug)]
pub(crate) struct Lead<'a> {
    pub(crate) sql: &'static str,
    pub(crate) parameters: Vec<&'a (dyn ToSql + Sync)>,
}

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Unflushed {
    /// A lead failed.
    Lead(Failure),
    /// A statement on the target failed. Nothing of the transaction remains.
    Data(Failure),
    /// Anything else, the connection included.
    Failed(Failure),
}

/// Parameters of the statement that moves positions.
pub(crate) struct Moves<'a> {
    pipeline: &'a str,
    splits: SplitArrays,
    epochs: Vec<i64>,
    from: Vec<i64>,
    to: Vec<i64>,
    details: Vec<&'a [u8]>,
    count: i64,
}

impl<'a> Moves<'a> {
    pub(crate) fn new(pipeline: &'a str, moves: &'a [Move]) -> Self {
        Self {
            pipeline,
            splits: SplitArrays::of(moves.iter().map(|moved| &moved.split)),
            epochs: moves.iter().map(|moved| moved.epoch).collect(),
            from: moves.iter().map(|moved| moved.from.next.cast_signed()).collect(),
            to: moves.iter().map(|moved| moved.to.next.cast_signed()).collect(),
            details: moves.iter().map(|moved| &*moved.to.detail).collect(),
            count: moves.len() as i64,
        }
    }

    /// Moves them, or fails with a division by zero: the only one in the statement.
    pub(crate) fn lead(&self) -> Lead<'_> {
        Lead {
            sql: failpoint::move_positions(),
            parameters: vec![
                &self.pipeline,
                &self.splits.streams,
                &self.splits.indexes,
                &self.epochs,
                &self.from,
                &self.to,
                &self.details,
                &self.count,
            ],
        }
    }
}

/// Writes rows in one transaction, behind its leads.
pub(crate) async fn flush(
    session: &mut Session,
    leads: &[Lead<'_>],
    work: &Work,
    points: Points,
) -> Result<(), Unflushed> {
    let result = transaction(session, leads, work, points).await;
    if result.is_err() && !session.client.is_closed() {
        session.roll_back().await;
    }
    result
}

async fn transaction(
    session: &mut Session,
    leads: &[Lead<'_>],
    work: &Work,
    points: Points,
) -> Result<(), Unflushed> {
    let mut prepared_leads = Vec::with_capacity(leads.len());
    for lead in leads {
        prepared_leads.push(session.prepare(lead.sql).await.map_err(Unflushed::Failed)?);
    }
    let mut prepared = Vec::with_capacity(work.statements.len());
    for statement in &work.statements {
        prepared.push(session.prepare(&statement.sql).await.map_err(Unflushed::Data)?);
    }
    fail_point!(points.before_begin);
    let client = &session.client;
    answered(session.patience, client.batch_execute(sql::BEGIN)).await.map_err(Unflushed::Failed)?;

    let mut steps: Vec<Step<'_>> = Vec::with_capacity(leads.len() + work.statements.len() + 1);
    for (lead, prepared) in leads.iter().zip(&prepared_leads) {
        steps.push(Box::pin(async move {
            client.execute(prepared, &lead.parameters).await?;
            Ok(())
        }));
    }
    for (statement, prepared) in work.statements.iter().zip(&prepared) {
        steps.push(Box::pin(async move {
            client.execute_raw(prepared, &statement.arrays).await?;
            Ok(())
        }));
    }
    steps.push(Box::pin(async {
        client.batch_execute(sql::COMMIT).await?;
        Ok(())
    }));

    let last = steps.len() - 1;
    let answers = match failpoint::is_stepwise() {
        false => pipelined(steps, session.patience).await,
        true => one_by_one(steps, leads.len(), points).await,
    };
    for (number, answer) in answers.into_iter().enumerate() {
        answer.map_err(|failure| match number {
            number if number < leads.len() => Unflushed::Lead(failure),
            // A deferred constraint speaks up at the end.
            number if number == last && failure.code.is_none() => Unflushed::Failed(failure),
            _ => Unflushed::Data(failure),
        })?;
    }
    Ok(())
}

/// Takes each step when the one before it is done, past the fail points in between.
async fn one_by_one(steps: Vec<Step<'_>>, leads: usize, points: Points) -> Vec<Result<(), Failure>> {
    let last = steps.len() - 1;
    let mut answers = Vec::with_capacity(steps.len());
    for (number, step) in steps.into_iter().enumerate() {
        if number == last {
            fail_point!(points.after_data);
            fail_point!(points.before_commit);
        }
        let answer = step.await;
        let has_failed = answer.is_err();
        answers.push(answer);
        if has_failed {
            break;
        }
        if number + 1 == leads {
            fail_point!(points.after_leads);
        }
        if number == last {
            fail_point!(points.after_commit);
        }
    }
    answers
}

/// Tells whether the first `changes` of an interval can be written, by writing them and rolling back.
pub(crate) async fn probe(session: &mut Session, work: &Work) -> Result<(), Failure> {
    let result = try_probe(session, work).await;
    if !session.client.is_closed() {
        session.roll_back().await;
    }
    result
}

async fn try_probe(session: &mut Session, work: &Work) -> Result<(), Failure> {
    let mut prepared = Vec::with_capacity(work.statements.len());
    for statement in &work.statements {
        prepared.push(session.prepare(&statement.sql).await?);
    }
    let client = &session.client;
    answered(session.patience, client.batch_execute(sql::BEGIN)).await?;
    let mut steps: Vec<Step<'_>> = Vec::with_capacity(work.statements.len() + 1);
    for (statement, prepared) in work.statements.iter().zip(&prepared) {
        steps.push(Box::pin(async move {
            client.execute_raw(prepared, &statement.arrays).await?;
            Ok(())
        }));
    }
    steps.push(Box::pin(async {
        client.batch_execute(sql::CHECK_DEFERRED).await?;
        Ok(())
    }));
    pipelined(steps, session.patience).await.into_iter().collect()
}

//! [BRG-09] The balance of a job.

use std::sync::Arc;

use levada_core::BoxError;
use levada_engine::{Input, Job, JobError, JobHandle, Outputs};

use crate::scripted::{Script, numbered, once, promptly, start, text};
use crate::table::Table;

/// [BRG-09] A sink that miscounts is an error, not a footnote.
#[tokio::test(start_paused = true)]
async fn miscounting_sink_ends_the_job() {
    let (logs, table) = (numbered(&[4]), Table::new());
    let (mut script, mut job) = start(Job::new("job"), logs, &table);
    table.miscount_by(1);
    script.assign(&[0]);
    script.read(&[(0, 4)]);
    script.end();
    let error = promptly(job.wait()).await.expect_err("5 of 4 written");
    let JobError::Unbalanced(unbalanced) = error else { panic!("{error:?}") };
    assert_eq!(unbalanced.to_string(), "the balance does not close: 4 read = 5 written");
}

/// Drops records at odd offsets, doubles those at offsets that 4 divides.
fn odd_one_out(input: Input<'_, String>, out: &mut Outputs<'_, String>) -> Result<(), BoxError> {
    let offset = input.origin().offset;
    if offset.is_multiple_of(2) {
        out.push(input.item().clone());
    }
    if offset.is_multiple_of(4) {
        out.push(format!("{} again", input.item()));
    }
    Ok(())
}

fn start_odd(table: &Table) -> (Script, JobHandle) {
    let (script, source) = Script::of(&Arc::new(numbered(&[8, 8])));
    let job = Job::new("job")
        .source("log", once(vec![source]))
        .map("text", text)
        .flat_map("odd", |_| odd_one_out)
        .filter("not-six", |input| !input.item().ends_with("@6"))
        .atomic_sink("table", once(vec![table.sink("us")]))
        .start()
        .expect("the shape is right");
    (script, job)
}

/// [BRG-09] Extra outputs and left-out inputs of every step are terms of the balance.
#[tokio::test(start_paused = true)]
async fn expanded_and_filtered_records_are_counted() {
    let table = Table::new();
    let (mut script, mut job) = start_odd(&table);
    script.assign(&[0]);
    script.read(&[(0, 3)]);
    script.read(&[(0, 5)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(report.balance.to_string(), "8 read + 2 expanded = 5 written + 5 filtered");
    assert_eq!(table.rows(), ["t-0@0", "t-0@0 again", "t-0@2", "t-0@4", "t-0@4 again"]);
}

/// [BRG-09] What was read, expanded and filtered before a discard is counted once, when it is committed.
#[tokio::test(start_paused = true)]
async fn discard_does_not_count_twice() {
    let table = Table::new();
    let (mut script, mut job) = start_odd(&table);
    script.assign(&[0, 1]);
    script.read(&[(0, 7), (1, 5)]);
    script.lose(&[1]);
    script.read(&[(0, 8)]);
    script.end();
    let report = promptly(job.wait()).await.expect("a good end");
    assert_eq!(report.balance.to_string(), "8 read + 2 expanded = 5 written + 5 filtered");
    assert_eq!(report.positions.get(&crate::scripted::split(0)).map(|at| at.next), Some(8));
}

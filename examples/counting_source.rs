//! A source that counts: bounded or endless, in parallel.
//!
//! ```text
//! cargo run -p levada-examples --bin counting_source               two subtasks count to 10 together
//! cargo run -p levada-examples --bin counting_source -- endless    until Ctrl-C or SIGTERM
//! ```
//!
//! The life of a source: it is opened once, asked for what comes next again and again, and closed once, however the job
//! ends. Cancelling needs no code: the runtime stops to ask, and drops a `next` that waits.

use std::error::Error;
use std::time::Duration;

use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::{SourceContext, SourceError, State};
use levada_engine::store::Store;
use levada_engine::{Job, STOP_DEADLINE};
use tokio::time::{Interval, interval};

/// One subtask's share: of p subtasks, number n counts n, n + p, n + 2p, …
#[derive(Debug)]
struct Count {
    subtask: u64,
    parallelism: u64,
    next: u64,
    /// Where the counting ends, if it does.
    end: Option<u64>,
    /// An endless source takes its time.
    beat: Interval,
}

impl Count {
    fn new(end: Option<u64>) -> Self {
        Self { subtask: 0, parallelism: 1, next: 0, end, beat: interval(Duration::from_millis(100)) }
    }
}

impl SourceFunction for Count {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, _restored: &State) -> Result<(), SourceError> {
        (self.subtask, self.parallelism) = (ctx.subtask.into(), ctx.parallelism.into());
        self.next = self.subtask;
        println!("subtask {} of {} opened", self.subtask, self.parallelism);
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        match self.end {
            Some(end) if self.next >= end => return Ok(Next::End),
            Some(_) => {}
            // This future may be dropped where it waits, for a checkpoint or for good: nothing is changed before.
            None => {
                self.beat.tick().await;
            }
        }
        out.record(self.next);
        self.next += self.parallelism;
        Ok(Next::More)
    }

    async fn close(&mut self) {
        println!("subtask {} of {} closed in front of {}", self.subtask, self.parallelism, self.next);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let end = match std::env::args().nth(1).as_deref() {
        None => Some(10),
        Some("endless") => None,
        Some(end) => Some(end.parse()?),
    };
    let job = Job::new("counting")
        .parallelism(2)
        .source_function("numbers", move |_subtask| Count::new(end))
        .for_each("print", |record, _| {
            println!("{}", record.item);
            Ok(())
        });
    // Told to end, it takes a last checkpoint: what was counted is printed, then the sources are closed.
    job.run_until_signal(Store::open("memory:").await?, STOP_DEADLINE).await?;
    println!("ended");
    Ok(())
}

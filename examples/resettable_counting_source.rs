//! A parallel source that goes on where the last checkpoint was, also with more or fewer subtasks.
//!
//! ```text
//! cargo run -p levada-examples --bin resettable_counting_source
//! ```
//!
//! The numbers are parted into 12 ways: way w holds w, w + 12, w + 24, … A subtask counts some ways, and stores the next
//! number of each as one element of a list. What cannot be parted further is one element: so the list can be dealt out
//! to any number of subtasks. Two kinds of list, for the same job:
//!
//! * `Split`: the runtime deals the elements out, each to one subtask.
//! * `Union`: every subtask gets all of them and picks its own, by a rule that the subtasks share.

use std::collections::BTreeSet;
use std::error::Error;

use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::{CheckpointId, ListState, SourceContext, SourceError, Spread, State};
use levada_engine::Job;
use levada_engine::store::Store;
use tokio::sync::watch;

const WAYS: u64 = 12;
const END: u64 = 1200;
/// Each life of the job: its subtasks, and how far they count.
const LIVES: [(u32, u64); 3] = [(2, 400), (4, 800), (3, END)];

#[derive(Debug)]
struct Count {
    spread: Spread,
    /// Up to here there is something to count in this life.
    up_to: u64,
    /// The next number of each way of this subtask.
    next: Vec<u64>,
}

impl SourceFunction for Count {
    type Item = u64;

    async fn open(&mut self, ctx: SourceContext, restored: &State) -> Result<(), SourceError> {
        let is_mine = |next: &u64| next % WAYS % u64::from(ctx.parallelism) == u64::from(ctx.subtask);
        self.next = match restored.get("next of each way") {
            // Nothing is stored yet: each way begins with its own number.
            None => (0..WAYS).filter(is_mine).collect(),
            Some(list) if self.spread == Spread::Union => {
                list.values()?.into_iter().filter(is_mine).collect()
            }
            Some(list) => list.values()?,
        };
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, u64>) -> Result<Next, SourceError> {
        match self.next.iter_mut().min() {
            Some(next) if *next < self.up_to => {
                out.record(*next);
                *next += WAYS;
                Ok(Next::More)
            }
            // Nothing to count for now: the job is stopped while this waits.
            _ if self.up_to < END => std::future::pending().await,
            _ => Ok(Next::End),
        }
    }

    /// Called between two calls of `next`: these offsets cover exactly what was emitted.
    fn snapshot(&mut self, _: CheckpointId) -> State {
        State::new().with("next of each way", ListState::of(self.spread, self.next.iter().copied()))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for spread in [Spread::Split, Spread::Union] {
        println!("{spread:?} list:");
        let counted = live_three_times(spread).await?;
        let different = counted.iter().copied().collect::<BTreeSet<u64>>();
        let lost = (0..END).filter(|number| !different.contains(number)).count();
        let repeated = counted.len() - different.len();
        println!("  balance: {END} numbers = {} counted - {repeated} repeated + {lost} lost", counted.len());
        if lost + repeated > 0 {
            return Err("the balance does not close".into());
        }
    }
    Ok(())
}

/// Runs the job three times over one checkpoint store, and returns every number that came out.
async fn live_three_times(spread: Spread) -> Result<Vec<u64>, Box<dyn Error>> {
    let store = Store::open("memory:").await?;
    let (counted, mut watching) = watch::channel(Vec::new());
    for (parallelism, up_to) in LIVES {
        let counted = counted.clone();
        let job = Job::new("counting")
            .parallelism(parallelism)
            .source_function("numbers", move |_| Count { spread, up_to, next: Vec::new() })
            .for_each("count", move |record, _| {
                counted.send_modify(|all| all.push(record.item));
                Ok(())
            });
        let mut job = job.start(store.clone())?;
        if up_to < END {
            watching.wait_for(|all| all.len() as u64 >= up_to).await?;
            job.stop().await?;
        }
        job.wait().await?;
        println!("  {parallelism} subtasks counted to {up_to}: {} numbers so far", watching.borrow().len());
    }
    Ok(watching.borrow().clone())
}

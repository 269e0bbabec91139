//! What happens to elements between the input of a task and its channels: steps, and the parting of lines.
//!
//! ```text
//!                       ┌▶ side: Outlet ══▶ the branch's first task
//!   input ─▶ Through ─▶ Parting
//!            (steps)    └▶ main: Outlet (again a relay, or a channel)
//! ```
//!
//! Both ways of a parting are bounded channels: the task waits for the slower one, and with it everything before.

use std::future::Future;
use std::pin::Pin;

use levada_core::{Batch, Record, StreamElement};

use super::mark::{Mark, Sorted};
use super::outlet::Outlet;
use super::side_output::Route;
use crate::map::{Chain, Produced};
use crate::message::Stopped;
use crate::time::{StageReport, TimeContext, TimeEvent, TimeTerms, Wanted};

pub(crate) type Sending<'a> = Pin<Box<dyn Future<Output = Result<(), Stopped>> + Send + 'a>>;

/// Takes elements, and sends what becomes of them.
pub(crate) trait Relay<T>: Send {
    fn send(&mut self, element: StreamElement<T>) -> Sending<'_>;

    /// Begins to keep time, if a step on the main way does that.
    fn begin_time(&mut self, ctx: &TimeContext) -> Option<TimeTerms>;

    /// Tells the step on the main way that keeps time, and sends what it says.
    fn time<'a>(&'a mut self, event: TimeEvent, wanted: &'a mut Wanted) -> Sending<'a>;
}

/// Runs steps.
pub(crate) struct Through<I, T> {
    chain: Box<dyn Chain<I, T>>,
    to: Outlet<T>,
    /// Whether one of the steps keeps time.
    keeps_time: bool,
}

impl<I, T: Send> Through<I, T> {
    pub(crate) fn new(chain: Box<dyn Chain<I, T>>, to: Outlet<T>) -> Self {
        Self { chain, to, keeps_time: false }
    }

    async fn hand_on(&mut self, produced: Produced<T>) -> Result<(), Stopped> {
        for element in produced.elements {
            self.to.send(element).await?;
        }
        produced.failure.map_or(Ok(()), |failure| Err(Stopped::Error(failure)))
    }
}

impl<I: Send + 'static, T: Send + 'static> Relay<I> for Through<I, T> {
    fn send(&mut self, element: StreamElement<I>) -> Sending<'_> {
        Box::pin(async move {
            match Sorted::from(element) {
                Sorted::Batch(batch) => {
                    let produced = self.chain.process(batch);
                    self.hand_on(produced).await
                }
                Sorted::Refused(refused) => self.to.send(StreamElement::Refused(refused)).await,
                Sorted::Mark(mark) => self.to.send(mark.element()).await,
                Sorted::Foreign => Ok(()),
            }
        })
    }

    fn begin_time(&mut self, ctx: &TimeContext) -> Option<TimeTerms> {
        let terms = self.chain.begin_time(ctx);
        self.keeps_time = terms.is_some();
        terms.or_else(|| self.to.begin_time(ctx))
    }

    fn time<'a>(&'a mut self, event: TimeEvent, wanted: &'a mut Wanted) -> Sending<'a> {
        Box::pin(async move {
            if !self.keeps_time {
                return self.to.time(event, wanted).await;
            }
            let produced = self.chain.time(event, wanted);
            self.hand_on(produced).await
        })
    }
}

/// Sends each record down one of two lines.
pub(crate) struct Parting<O, S> {
    pub(crate) main: Outlet<O>,
    pub(crate) side: Outlet<S>,
}

impl<O: Send + 'static, S: Send + 'static> Relay<Route<O, S>> for Parting<O, S> {
    fn send(&mut self, element: StreamElement<Route<O, S>>) -> Sending<'_> {
        Box::pin(async move {
            match Sorted::from(element) {
                Sorted::Batch(batch) => {
                    let (main, side) = part(batch);
                    self.main.send_batch(main).await?;
                    self.side.send_batch(side).await
                }
                // Down one line only, that of the records it was read among.
                Sorted::Refused(refused) => self.main.send(StreamElement::Refused(refused)).await,
                Sorted::Mark(mark) => {
                    self.main.send(mark.element()).await?;
                    self.side.send(mark.element()).await
                }
                Sorted::Foreign => Ok(()),
            }
        })
    }

    fn begin_time(&mut self, ctx: &TimeContext) -> Option<TimeTerms> {
        self.main.begin_time(ctx)
    }

    fn time<'a>(&'a mut self, event: TimeEvent, wanted: &'a mut Wanted) -> Sending<'a> {
        Box::pin(self.main.time(event, wanted))
    }
}

/// Sends records that the watermark has covered down a line of their own. [TIM-11]
pub(crate) struct LateParting<T> {
    pub(crate) main: Outlet<T>,
    pub(crate) late: Outlet<T>,
    /// Knows the watermark here.
    pub(crate) report: StageReport,
}

impl<T: Send + 'static> LateParting<T> {
    async fn batch(&mut self, batch: Batch<T>) -> Result<(), Stopped> {
        let watermark = self.report.watermark();
        let is_late = |record: &Record<T>| record.timestamp().is_some_and(|timestamp| timestamp <= watermark);
        if !batch.records().iter().any(is_late) {
            return self.main.send(StreamElement::Batch(batch)).await;
        }
        let (parts, records) = batch.into_parts();
        let (late, on_time): (Vec<_>, Vec<_>) = records.into_iter().partition(is_late);
        self.report.add_late(late.len() as u64);
        self.main.send_batch(parts.with_records(on_time)).await?;
        self.late.send_batch(parts.with_records(late)).await
    }
}

impl<T: Send + 'static> Relay<T> for LateParting<T> {
    fn send(&mut self, element: StreamElement<T>) -> Sending<'_> {
        Box::pin(async move {
            match Sorted::from(element) {
                Sorted::Batch(batch) => self.batch(batch).await,
                // Down one line only, as at every parting.
                Sorted::Refused(refused) => self.main.send(StreamElement::Refused(refused)).await,
                Sorted::Mark(mark) => {
                    if let Mark::Watermark(watermark) = mark {
                        self.report.reached(watermark.max(self.report.watermark()));
                    }
                    self.main.send(mark.element()).await?;
                    self.late.send(mark.element()).await
                }
                Sorted::Foreign => Ok(()),
            }
        })
    }

    fn begin_time(&mut self, ctx: &TimeContext) -> Option<TimeTerms> {
        self.main.begin_time(ctx)
    }

    fn time<'a>(&'a mut self, event: TimeEvent, wanted: &'a mut Wanted) -> Sending<'a> {
        Box::pin(self.main.time(event, wanted))
    }
}

/// Parts a batch by route; the order within a part is that of the batch. Both parts share its arena.
fn part<O, S>(batch: Batch<Route<O, S>>) -> (Batch<O>, Batch<S>) {
    let (parts, records) = batch.into_parts();
    let (mut main, mut side) = (Vec::with_capacity(records.len()), Vec::new());
    for Record { origin, item } in records {
        match item {
            Route::Main(item) => main.push(Record { origin, item }),
            Route::Side(item) => side.push(Record { origin, item }),
        }
    }
    (parts.with_records(main), parts.with_records(side))
}

/// Sends each record down both lines.
pub(crate) struct Doubling<T> {
    pub(crate) main: Outlet<T>,
    pub(crate) copy: Outlet<T>,
}

impl<T: Clone + Send + Sync + 'static> Relay<T> for Doubling<T> {
    fn send(&mut self, element: StreamElement<T>) -> Sending<'_> {
        Box::pin(async move {
            match Sorted::from(element) {
                Sorted::Batch(batch) => {
                    let copy = batch.parts().with_records(batch.records().to_vec());
                    self.copy.send_batch(copy).await?;
                    self.main.send_batch(batch).await
                }
                // Down one line only: a record must not be refused twice.
                Sorted::Refused(refused) => self.main.send(StreamElement::Refused(refused)).await,
                Sorted::Mark(mark) => {
                    self.main.send(mark.element()).await?;
                    self.copy.send(mark.element()).await
                }
                Sorted::Foreign => Ok(()),
            }
        })
    }

    fn begin_time(&mut self, ctx: &TimeContext) -> Option<TimeTerms> {
        self.main.begin_time(ctx)
    }

    fn time<'a>(&'a mut self, event: TimeEvent, wanted: &'a mut Wanted) -> Sending<'a> {
        Box::pin(self.main.time(event, wanted))
    }
}

#[cfg(test)]
mod tests {
    use levada_core::batch::RawRecord;
    use levada_core::{
        Barrier, BarrierKind, BatchBuilder, Budget, CheckpointId, Refused, SplitId, StreamStatus, Timestamp,
    };
    use tokio::sync::mpsc::{self, Receiver};

    use super::*;

    /// Four records whose items are their offsets, with ten bytes of the budget.
    fn batch(budget: &Budget) -> Batch<u64> {
        let mut builder = BatchBuilder::new();
        let split = builder.split(&SplitId::new("t", 0));
        for offset in 0..4 {
            builder.push(split, RawRecord { offset, value: Some(b"v"), ..RawRecord::default() });
        }
        builder.hold(budget.try_acquire(10).unwrap());
        let (parts, records) = builder.finish().0.into_parts();
        let item = |Record { origin, .. }: Record<()>| Record { origin, item: origin.offset };
        parts.with_records(records.into_iter().map(item).collect())
    }

    fn way<T>() -> (Outlet<T>, Receiver<StreamElement<T>>) {
        let (sender, receiver) = mpsc::channel(16);
        (Outlet::Forward(sender), receiver)
    }

    /// What came down a way, as text; batches are dropped.
    fn came<T: std::fmt::Debug>(way: &mut Receiver<StreamElement<T>>) -> Vec<String> {
        let name = |element| match element {
            StreamElement::Batch(batch) => {
                let items = batch.records().iter().map(|record| {
                    let origin = &record.origin;
                    assert_eq!(batch.value(origin), Some(&b"v"[..]));
                    format!("{:?} of {}", record.item, batch.coordinates(origin))
                });
                items.collect::<Vec<_>>().join(", ")
            }
            StreamElement::Refused(refused) => format!("refused {}", refused.coordinates()),
            StreamElement::Watermark(watermark) => format!("watermark {}", watermark.0),
            StreamElement::Status(status) => format!("{status:?}"),
            StreamElement::Barrier(barrier) => format!("barrier {}", barrier.checkpoint),
            StreamElement::End => "end".to_owned(),
            other => format!("{other:?}"),
        };
        std::iter::from_fn(|| way.try_recv().ok()).map(name).collect()
    }

    fn marks<T>() -> [StreamElement<T>; 4] {
        let checkpoint = CheckpointId::new(1, 7);
        let barrier = Barrier { checkpoint, kind: BarrierKind::Checkpoint, triggered_at: Timestamp(0) };
        [
            StreamElement::Watermark(Timestamp(5)),
            StreamElement::Status(StreamStatus::Idle),
            StreamElement::Barrier(barrier),
            StreamElement::End,
        ]
    }

    fn refused<T>(batch: &Batch<T>) -> Refused {
        let origin = batch.records()[0].origin;
        Refused::new(batch.parts(), Record { origin, item: () }, "no".into())
    }

    fn routed(batch: Batch<u64>) -> Batch<Route<u64, String>> {
        let (parts, records) = batch.into_parts();
        let route = |Record { origin, item }: Record<u64>| match item % 2 {
            0 => Record { origin, item: Route::Main(item) },
            _ => Record { origin, item: Route::Side(item.to_string()) },
        };
        parts.with_records(records.into_iter().map(route).collect())
    }

    /// [CHK-02] a barrier, as every mark, goes down both ways, each in its place; a refused record goes down one.
    #[tokio::test]
    async fn parted_records_go_one_way_and_marks_go_both() {
        let budget = Budget::new(100);
        let ((main, mut main_way), (side, mut side_way)) = (way(), way());
        let mut parting = Parting { main, side };
        let (records, refused) = {
            let batch = batch(&budget);
            let refused = refused(&batch);
            (routed(batch), refused)
        };
        parting.send(StreamElement::Batch(records)).await.unwrap();
        parting.send(StreamElement::Refused(refused)).await.unwrap();
        for mark in marks() {
            parting.send(mark).await.unwrap();
        }
        let marks = ["watermark 5", "Idle", "barrier 1-7", "end"];
        let main = came(&mut main_way);
        assert_eq!(main[..2], ["0 of t-0@0, 2 of t-0@2", "refused t-0@0"]);
        assert_eq!(main[2..], marks);
        let side = came(&mut side_way);
        assert_eq!(side[0], "\"1\" of t-0@1, \"3\" of t-0@3");
        assert_eq!(side[1..], marks);
    }

    #[tokio::test]
    async fn doubled_records_and_marks_go_both_ways_and_a_refused_one_goes_one() {
        let budget = Budget::new(100);
        let ((main, mut main_way), (copy, mut copy_way)) = (way(), way());
        let mut doubling = Doubling { main, copy };
        let records = batch(&budget);
        let refused = refused(&records);
        doubling.send(StreamElement::Batch(records)).await.unwrap();
        doubling.send(StreamElement::Refused(refused)).await.unwrap();
        for mark in marks() {
            doubling.send(mark).await.unwrap();
        }
        let (mut main, copy) = (came(&mut main_way), came(&mut copy_way));
        assert_eq!(main.remove(1), "refused t-0@0");
        assert_eq!(main[0], "0 of t-0@0, 1 of t-0@1, 2 of t-0@2, 3 of t-0@3");
        assert_eq!(main, copy);
        assert_eq!(main[1..], ["watermark 5", "Idle", "barrier 1-7", "end"]);
    }

    /// Payload that two lines share is counted once, and until the slower one has let go of it.
    #[tokio::test]
    async fn bytes_return_to_the_budget_when_both_lines_have_let_go() {
        let budget = Budget::new(100);
        let ((main, mut main_way), (copy, mut copy_way)) = (way(), way());
        let mut doubling = Doubling { main, copy };
        doubling.send(StreamElement::Batch(batch(&budget))).await.unwrap();
        assert_eq!(budget.used(), 10);
        drop(came(&mut main_way));
        assert_eq!(budget.used(), 10);
        drop(came(&mut copy_way));
        assert_eq!(budget.used(), 0);
    }
}

//! A function at the end of a flow.

use std::sync::mpsc;

use levada_core::template::{Emit, Next, SourceFunction};
use levada_core::{ErrorChain, SourceContext, SourceError, State, Timestamp};
use levada_engine::Job;
use levada_engine::store::Store;

/// Emits 0 to 4, at the seconds of their numbers, each with a watermark behind it.
#[derive(Debug, Default)]
struct Five(i64);

impl SourceFunction for Five {
    type Item = i64;

    async fn open(&mut self, _: SourceContext, _: &State) -> Result<(), SourceError> {
        Ok(())
    }

    async fn next(&mut self, out: &mut Emit<'_, i64>) -> Result<Next, SourceError> {
        if self.0 == 5 {
            return Ok(Next::End);
        }
        out.record_at(self.0, Timestamp(self.0 * 1000));
        out.watermark(Timestamp(self.0 * 1000));
        self.0 += 1;
        Ok(Next::More)
    }
}

/// [TPL-04] the three times; the record's own comes with the record.
#[tokio::test]
async fn function_sees_each_record_with_its_times() {
    let (seen, all_seen) = mpsc::channel();
    let job = Job::new("five").source_function("numbers", |_| Five::default());
    let job = job.for_each("see", move |record, ctx| {
        let is_now = ctx.processing_time > Timestamp(1_700_000_000_000);
        Ok(seen.send((record.item, record.timestamp(), ctx.watermark, is_now))?)
    });
    job.run(Store::open("memory:").await.unwrap()).await.unwrap();
    let second = |number: i64| Timestamp(number * 1000);
    let watermark = |number: i64| if number == 0 { Timestamp(i64::MIN) } else { second(number - 1) };
    let expected = (0..5).map(|number| (number, Some(second(number)), watermark(number), true));
    assert_eq!(all_seen.iter().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[tokio::test]
async fn failing_function_ends_the_job_and_names_the_record() {
    let job = Job::new("five").source_function("numbers", |_| Five::default());
    let job = job.for_each("see", |record, _| if record.item == 3 { Err("three".into()) } else { Ok(()) });
    let error = job.run(Store::open("memory:").await.unwrap()).await.unwrap_err();
    let chain = ErrorChain(&error).to_string();
    assert!(chain.contains("numbers-0@3: the function failed: three"), "{chain}");
}

//! Records a second by synchronous, asynchronous and batched calls to a system that takes 1, 5 and 20 ms to answer.
//!
//! ```text
//! cargo run --release -p levada-examples --bin async_throughput               about 2 s
//! cargo run --release -p levada-examples --bin async_throughput -- 10         ten times as many records
//! ```
//!
//! One call at a time gives 1000 ÷ latency records a second at most, whatever the machine does. A hundred at once give up to a
//! hundred times that. With up to 500 records a call and sixteen calls in flight it is the machine that sets the limit. The other
//! system is a timer, which counts whole milliseconds and rounds up: its 1 ms are nearly 2. Compare numbers of one run only.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use levada_core::async_io::{AsyncSettings, Batching, CallError, Called};
use levada_engine::async_io::{over, over_many};
use tokio::time::{Instant, sleep_until};

const LATENCIES: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(5), Duration::from_millis(20)];
const IN_FLIGHT: usize = 100;
const BATCHES_IN_FLIGHT: usize = 16;
const BATCH: usize = 500;

async fn call(number: u64, latency: Duration) -> Called<u64> {
    sleep_until(Instant::now() + latency).await;
    Ok(vec![number])
}

async fn call_many(numbers: Vec<Arc<u64>>, latency: Duration) -> Result<Vec<Called<u64>>, CallError> {
    sleep_until(Instant::now() + latency).await;
    Ok(numbers.iter().map(|number| Ok(vec![**number])).collect())
}

fn numbers(count: u64) -> impl Stream<Item = u64> + Send + 'static {
    futures_util::stream::iter(0..count)
}

/// Takes all outputs, and returns how many there were a second.
async fn rate<T>(outputs: impl Stream<Item = Result<T, CallError>>) -> Result<f64, CallError> {
    let begun = Instant::now();
    let mut outputs = std::pin::pin!(outputs);
    let mut count = 0_u32;
    while let Some(output) = outputs.next().await {
        output?;
        count += 1;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let times: u64 = std::env::args().nth(1).map_or(Ok(1), |times| times.parse())?;
    println!("records/s          synchronous  asynchronous       batched");
    for latency in LATENCIES {
        let millis = latency.as_millis();
        let count = times * 200 / u64::try_from(millis)?;
        // The stream waits for each answer before it makes the next call.
        let synchronous = rate(numbers(count).then(|number| call(number, latency))).await?;
        let one = move |number: Arc<u64>| call(*number, latency);
        let asynchronous = over(numbers(50 * count), one, AsyncSettings::new().capacity(IN_FLIGHT))?;
        let asynchronous = rate(asynchronous).await?;
        let many = move |numbers| call_many(numbers, latency);
        let settings = AsyncSettings::new().capacity(BATCHES_IN_FLIGHT);
        let batched = over_many(numbers(times * 24_000), many, settings, Batching::new(BATCH))?;
        let batched = rate(batched).await?;
        println!("latency {millis:>2} ms {synchronous:>16.0} {asynchronous:>13.0} {batched:>13.0}");
    }
    Ok(())
}

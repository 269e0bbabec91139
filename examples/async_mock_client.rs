//! Many calls in flight, and the three orders in which their results leave. The client is a mock: it answers after a random time.
//!
//! ```text
//! cargo run -p levada-examples --bin async_mock_client              always the same latencies
//! cargo run -p levada-examples --bin async_mock_client -- SEED      others
//! ```
//!
//! An ordered step waits for its slowest call, an unordered one for none, and one by key for those of the same key alone. No
//! result crosses a watermark: with one behind each fourth number, fours stay together. All calls run at once either way, so a
//! job takes about as long as its slowest call, not as all of them together.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::async_io::{AsyncFunction, AsyncSettings, Called};
use levada_engine::Job;
use levada_engine::store::Store;
use levada_examples::Numbers;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep_until};

const NUMBERS: u64 = 12;
/// With more numbers than there are between two watermarks, there is none before the end.
const NO_WATERMARK: u64 = NUMBERS + 1;

/// A client of no system. It notes in which order it has answered.
#[derive(Debug, Clone)]
struct Client {
    latencies: Arc<Mutex<StdRng>>,
    answered: Arc<Mutex<Vec<u64>>>,
    /// What its calls would take one after the other.
    in_all: Arc<Mutex<Duration>>,
}

impl Client {
    fn new(seed: u64) -> Self {
        let latencies = Arc::new(Mutex::new(StdRng::seed_from_u64(seed)));
        Self { latencies, answered: Arc::default(), in_all: Arc::default() }
    }
}

impl AsyncFunction<u64> for Client {
    type Output = u64;

    /// Returns at once; what takes time is the future. A closure would do as well: `|number: Arc<u64>| async move { … }`.
    fn call(&self, number: Arc<u64>) -> impl Future<Output = Called<u64>> + Send + 'static {
        let latency = self.latencies.lock().expect("nobody panics").random_range(20..=200);
        let latency = Duration::from_millis(latency);
        *self.in_all.lock().expect("nobody panics") += latency;
        let answered = Arc::clone(&self.answered);
        async move {
            sleep_until(Instant::now() + latency).await;
            answered.lock().expect("nobody panics").push(*number);
            Ok(vec![*number])
        }
    }
}

fn listed(numbers: &Mutex<Vec<u64>>) -> String {
    let numbers = numbers.lock().expect("nobody panics");
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

/// Runs a job and prints what left its step, and in which order the client had answered.
async fn show(
    title: &str,
    seed: u64,
    watermark_every: u64,
    settings: AsyncSettings<u64, u64>,
) -> Result<(), Box<dyn Error>> {
    let (client, begun) = (Client::new(seed), Instant::now());
    let left = Arc::new(Mutex::new(Vec::new()));
    let leaves = Arc::clone(&left);
    let job = Job::new("mock")
        .source_function("numbers", move |_| Numbers::up_to(NUMBERS).watermark_every(watermark_every))
        .async_map("client", client.clone(), settings)
        .for_each("left", move |record, _| {
            leaves.lock().expect("nobody panics").push(record.item);
            Ok(())
        });
    job.run(Store::open("memory:").await?).await?;
    println!("{title}");
    println!("  answered: {}", listed(&client.answered));
    println!("  left:     {}", listed(&left));
    let in_all = client.in_all.lock().expect("nobody panics").as_millis();
    println!("  took {} ms; one call after the other: {in_all} ms", begun.elapsed().as_millis());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let seed = std::env::args().nth(1).map_or(Ok(1), |seed| seed.parse())?;
    let settings = || AsyncSettings::new().capacity(100).timeout(Duration::from_secs(5));
    show("ordered", seed, NO_WATERMARK, settings().ordered()).await?;
    show("unordered", seed, NO_WATERMARK, settings().unordered()).await?;
    show("per key, the remainder by 3", seed, NO_WATERMARK, settings().key_ordered_by(|number| number % 3))
        .await?;
    show("unordered, a watermark behind each fourth", seed, 4, settings().unordered()).await
}

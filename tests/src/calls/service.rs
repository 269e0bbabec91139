//! The other system: it answers after some milliseconds, and now and then it is busy.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use levada_core::ErrorClass;
use levada_core::async_io::{AsyncFunction, CallError, Called};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep_until};

use super::answer_to;
use super::ways::number_of;

/// Answers numbers.
#[derive(Debug, Clone)]
pub(super) struct Service {
    random: Arc<Mutex<StdRng>>,
    /// Whether it is busy now and then.
    is_weak: bool,
}

impl Service {
    pub(super) fn new(seed: u64, is_weak: bool) -> Self {
        Self { random: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))), is_weak }
    }

    /// Draws how long a call takes, and whether it fails then. One of 32 takes much longer, and holds up those that are to
    /// leave behind it.
    fn draw(&self) -> (Duration, bool) {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = if random.random_ratio(1, 32) { 50 } else { 12 };
        let latency = Duration::from_millis(random.random_range(1..=longest));
        (latency, self.is_weak && random.random_ratio(1, 16))
    }
}

impl AsyncFunction<String> for Service {
    type Output = String;

    fn call(&self, input: Arc<String>) -> impl Future<Output = Called<String>> + Send + 'static {
        let (latency, is_busy) = self.draw();
        async move {
            sleep_until(Instant::now() + latency).await;
            if is_busy {
                return Err(CallError::new(ErrorClass::Retry, "busy"));
            }
            let number = number_of(&input).ok_or_else(|| CallError::bad_record("no number"))?;
            Ok(vec![format!("{number} {}", answer_to(number))])
        }
    }
}

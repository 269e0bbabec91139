//! What goes into the topic.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Verdict;
use crate::topic::Topic;

/// How many keys there are: several of each partition and of each subtask.
const KEYS: usize = 48;
/// The partitions of the topic.
pub(super) const PARTITIONS: usize = 4;
/// Makes the records of an interval too large to be stored inside of a manifest.
const PADDING: &str = "....................................................";

/// Sends numbered values of each key.
#[derive(Debug)]
pub struct Feed<'a> {
    topic: &'a Topic,
    next: Vec<u64>,
    sent: u64,
}

/// How many values of each key were fed.
#[derive(Debug)]
pub struct Fed(BTreeMap<String, u64>);

impl<'a> Feed<'a> {
    /// Begins with the number 0 of each key.
    pub fn into(topic: &'a Topic) -> Self {
        Self { topic, next: vec![0; KEYS], sent: 0 }
    }

    /// Sends so many values, the keys in an uneven order.
    pub fn send(&mut self, values: u64) {
        for _ in 0..values {
            let place = (self.sent * 7 + self.sent / 11) as usize % KEYS;
            let (key, value) = (format!("key-{place}"), format!("{} {PADDING}", self.next[place]));
            self.topic.send(Some((place % PARTITIONS) as i32), Some(&key), Some(&value));
            self.next[place] += 1;
            self.sent += 1;
        }
    }

    /// Sends `per_second` values each second while `work` is done.
    pub fn beside<R>(self, per_second: u64, work: impl FnOnce() -> R) -> (R, Fed)
    where
        Self: Send,
    {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let feeding = scope.spawn(|| self.flow(per_second, &is_over));
            let ending = SetWhenDropped(&is_over);
            let done = work();
            drop(ending);
            (done, feeding.join().expect("everything is fed"))
        })
    }

    fn flow(mut self, per_second: u64, is_over: &AtomicBool) -> Fed {
        let begun = Instant::now();
        while !is_over.load(Ordering::Relaxed) {
            let due = (begun.elapsed().as_secs_f64() * per_second as f64) as u64;
            self.send(due.saturating_sub(self.sent));
            self.topic.wait(Duration::from_millis(5));
        }
        self.end()
    }

    /// Waits until the broker has everything.
    pub fn end(self) -> Fed {
        self.topic.flush();
        let keys = self.next.into_iter().enumerate().filter(|(_, count)| *count > 0);
        Fed(keys.map(|(place, count)| (format!("key-{place}"), count)).collect())
    }
}

/// Ends the feed also when the work beside it panics: it would be waited for without end.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Fed {
    /// Returns how many values were fed.
    pub fn values(&self) -> u64 {
        self.0.values().sum()
    }

    /// Compares with how many values were found of each key.
    ///
    /// # Errors
    /// The first key with a difference.
    pub fn compare(&self, found: &BTreeMap<String, u64>) -> Verdict {
        for (key, fed) in &self.0 {
            let found = found.get(key).copied().unwrap_or_default();
            if found != *fed {
                return Err(
                    format!("of {fed} values of {key} the last {} are lost", fed - found.min(*fed)).into()
                );
            }
        }
        match found.keys().find(|key| !self.0.contains_key(*key)) {
            Some(key) => Err(format!("nobody has fed {key}").into()),
            None => Ok(()),
        }
    }
}

//! Which record it is that the server refuses.

use std::time::Duration;

use levada_core::{ErrorClass, SinkError};

use super::backoff::Pauses;
use super::commit;
use super::error::Failure;
use super::writer::Writer;

impl Writer {
    /// Finds the first change, in the order of writing, that cannot be written together with those before it.
    ///
    /// Halves the interval: each probe writes the first changes as a commit would, and rolls back. At most
    /// `⌈log2 n⌉ + 1` probes. Returns `None` if all changes pass now.
    pub(crate) async fn find_bad_record(&mut self, first: Failure) -> Result<Option<SinkError>, SinkError> {
        let (mut good, mut bad) = (0, self.interval.changes.len());
        let mut reason = first;
        let mut is_confirmed = false;
        while bad - good > 1 || !is_confirmed {
            // The last one left is probed, too: the first failure was that of a later state of the same key, or of
            // another record.
            let count = if bad - good > 1 { good + (bad - good) / 2 } else { bad };
            match self.probe(count).await? {
                None if count == self.interval.changes.len() => return Ok(None),
                None => {
                    good = count;
                    is_confirmed = false;
                }
                Some(failure) => {
                    bad = count;
                    reason = failure;
                    is_confirmed = true;
                }
            }
            if good == bad {
                return Ok(None);
            }
        }
        let coordinates = self.interval.coordinates(&self.interval.changes[bad - 1]);
        let code = reason.code.as_deref().unwrap_or("unknown");
        let message = format!("{} refuses it, SQLSTATE {code}{}", self.config.table, reason.cause.place());
        Ok(Some(SinkError::bad_record(coordinates, message).caused_by(*reason.cause)))
    }

    /// Tries to write the first `count` changes; returns what makes them bad, if anything.
    async fn probe(&mut self, count: usize) -> Result<Option<Failure>, SinkError> {
        let work = self.work(count)?;
        let mut pauses = Pauses::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut retries = 0;
        loop {
            self.stats.probes += 1;
            let Some(session) = &mut self.session else {
                self.connected().await?;
                continue;
            };
            let Err(failure) = commit::probe(session, &work).await else {
                self.recovered();
                return Ok(None);
            };
            match failure.class {
                ErrorClass::BadRecord => {
                    self.recovered();
                    return Ok(Some(failure));
                }
                ErrorClass::Reconnect => {
                    self.count_retry(&failure);
                    self.lost(&failure);
                }
                ErrorClass::Retry if retries < self.config.max_retries => {
                    retries += 1;
                    self.count_retry(&failure);
                    pauses.next().await;
                }
                _ => {
                    return Err(failure.during(format!("looking for a bad record for {}", self.config.table)));
                }
            }
        }
    }
}

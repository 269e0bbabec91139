//! A flush that rests on its leads or on its key alone: what can be tried again is.

use std::time::Duration;

use levada_core::{ErrorClass, SinkError};
use tracing::debug;

use super::backoff::Pauses;
use super::commit::{self, Lead, Unflushed};
use super::error::{Failure, fatal};
use super::failpoint::Points;
use super::statement::Work;
use super::writer::{Outage, Writer};

/// What a flush came to.
#[derive(Debug)]
pub(crate) enum Flushed {
    Done,
    /// The server refused a lead, and with it everything.
    Refused(Failure),
}

/// What failed.
enum Part {
    Lead,
    Data,
    Rest,
}

impl Writer {
    /// Sends the interval behind `leads`, in one transaction.
    ///
    /// With [`Outage::Wait`] it goes on until the server is back, and sends again without knowing what became of the
    /// attempt before: right only for what may be written twice. With [`Outage::Report`] a lost connection is an error.
    ///
    /// # Errors
    /// [`ErrorClass::BadRecord`] with its coordinates; else what trying again did not mend.
    pub(crate) async fn flush(
        &mut self,
        leads: &[Lead<'_>],
        work: &Work,
        points: Points,
    ) -> Result<Flushed, SinkError> {
        let mut pauses = Pauses::new(Duration::from_millis(10), Duration::from_secs(1));
        let mut outages = Pauses::new(Duration::from_millis(50), self.config.reconnect_pause);
        let mut retries = 0;
        loop {
            self.connected().await?;
            let Some(session) = &mut self.session else { return Err(fatal("the sink is not open")) };
            let unflushed = match commit::flush(session, leads, work, points).await {
                Ok(()) => {
                    self.recovered();
                    self.count_flush(work);
                    return Ok(Flushed::Done);
                }
                Err(unflushed) => unflushed,
            };
            let (failure, part) = match unflushed {
                Unflushed::Lead(failure) => (failure, Part::Lead),
                Unflushed::Data(failure) => (failure, Part::Data),
                Unflushed::Failed(failure) => (failure, Part::Rest),
            };
            match (failure.class, part) {
                (ErrorClass::Retry, _) if retries < self.config.max_retries => {
                    retries += 1;
                    self.count_retry(&failure);
                    debug!(code = failure.code, retries, "flush is tried again");
                    pauses.next().await;
                }
                (ErrorClass::Reconnect, _) => {
                    self.count_retry(&failure);
                    self.lost(&failure);
                    if self.outage == Outage::Report {
                        return Err(self.gave_up(failure, work));
                    }
                    outages.next().await;
                }
                (_, Part::Lead) => return Ok(Flushed::Refused(failure)),
                (ErrorClass::BadRecord, Part::Data) => {
                    if let Some(error) = self.find_bad_record(failure).await? {
                        return Err(error);
                    }
                    // Every prefix could be written just now: what it clashed with is gone.
                    retries += 1;
                    if retries > self.config.max_retries {
                        return Err(self.flickering());
                    }
                }
                _ => return Err(self.gave_up(failure, work)),
            }
        }
    }
}

//! Starts the consumer's thread: opens, then reads.

use std::sync::Arc;
use std::time::Instant;

use levada_core::{Positions, SourceContext, SourceError};
use tokio::sync::oneshot;

use super::client;
use super::config::KafkaSourceConfig;
use super::contact::Contact;
use super::error::ReadError;
use super::events::Client;
use super::handover::Exchange;
use super::leaders::leaders_config;
use super::producers::Finder;
use super::reader::Reader;
use super::start::{Opened, Opener};
use super::status::SourceStatus;
use super::topic_ids::TopicIds;

/// What the consumer's thread is started with.
pub(super) struct ReaderThread {
    pub(super) config: KafkaSourceConfig,
    pub(super) status: Arc<SourceStatus>,
    pub(super) exchange: Arc<Exchange>,
    pub(super) ctx: SourceContext,
    pub(super) finder: Finder,
}

impl ReaderThread {
    pub(super) fn run(self, opened: oneshot::Sender<Result<Opened, SourceError>>) {
        // Also when the thread panics, `poll` must not wait for ever.
        let _end = EndGuard(Arc::clone(&self.exchange));
        match self.open() {
            Ok((client, mut found)) => {
                let (stops, topic_ids) = (found.stops.clone(), std::mem::take(&mut found.topic_ids));
                if opened.send(Ok(found)).is_ok() {
                    self.reader(client, stops, topic_ids).run();
                }
            }
            Err(error) => drop(opened.send(Err(error.into()))),
        }
    }

    fn open(&self) -> Result<(Client, Opened), ReadError> {
        let SourceContext { subtask, parallelism, budget } = &self.ctx;
        let config = client::client_config(&self.config, budget, *subtask, *parallelism);
        let mut client =
            Client::new(config, Arc::clone(self.exchange.wake())).map_err(ReadError::of_creation)?;
        let started = Instant::now();
        loop {
            match self.ask(&client, started) {
                Err(why @ ReadError::LetGo) if started.elapsed() < self.config.open_within => {
                    tracing::warn!(reason = %why, "another Kafka client opens the source");
                    let another = client.anew().map_err(ReadError::of_creation)?;
                    std::mem::replace(&mut client, another).retire();
                }
                found => return Ok((client, found?)),
            }
        }
    }

    fn ask(&self, client: &Client, started: Instant) -> Result<Opened, ReadError> {
        let opener = Opener {
            client,
            contact: Contact::default(),
            config: &self.config,
            leaders: leaders_config(&self.config, &self.ctx),
            exchange: &self.exchange,
            status: &self.status,
            started,
            last_error: None,
            log: Vec::new(),
        };
        opener.open(self.ctx.subtask, self.ctx.parallelism)
    }

    fn reader(self, client: Client, stops: Option<Positions>, topic_ids: TopicIds) -> Reader {
        let Self { config, status, exchange, ctx, finder } = self;
        Reader::new(client, &config, exchange, status, ctx.budget, stops, topic_ids).finding_by(finder)
    }
}

struct EndGuard(Arc<Exchange>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

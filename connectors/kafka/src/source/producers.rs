//! Whose the open transactions are that splits are behind: asked beside everything else, for people.
//!
//! ```text
//!   asker: a reason to complete ──┐                            ┌─▶ news: the reason of a blocked split
//!   observer: a line to write ────┴─▶ task: all that wait, at ─┼─▶ the line, with the producer and since when, or without
//!                                     once, with a deadline    └─▶ the status
//! ```
//!
//! Nobody waits for it, and nothing is decided by it: where the brokers give no answer, or may not be asked in a way that
//! this client knows, everything is said without.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_core::SplitId;
use levada_core::time::{OpenTransaction, SplitEvent};
use rdkafka::ClientConfig;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::handover::{Exchange, Handover, ReadingId};
use super::status::SourceStatus;

/// The longest that a line waits for a producer.
const WITHIN: Duration = Duration::from_secs(5);

/// A split that a transaction is in front of.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) split: SplitId,
    /// Where what may be read ends.
    pub(super) position: u64,
    pub(super) then: Then,
}

/// What is done with the answer.
#[derive(Debug)]
pub(super) enum Then {
    /// Whoever keeps the time of this reading is told, if there is an answer.
    Tell(ReadingId),
    /// A line is written in each case.
    Say(Waiting),
}

/// What a line says of a split that waits for a transaction.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) high_watermark: Option<u64>,
    pub(super) stop: Option<u64>,
    /// How long it has been seen to wait.
    pub(super) waited: Duration,
    pub(super) is_hanging: bool,
}

/// What was found, by split: the lowest offset of the transaction, and whose it is.
pub(super) type Found = BTreeMap<SplitId, OpenTransaction>;

/// Hands splits on to the task that looks for their transactions. Cheap to clone; the task ends with the last one.
#[derive(Debug, Clone, Default)]
pub(super) struct Finder(Option<UnboundedSender<Vec<Behind>>>);

impl Finder {
    /// Starts the task on the current runtime. Connects to nobody before there is something to find.
    pub(super) fn start(config: ClientConfig, exchange: Arc<Exchange>, status: Arc<SourceStatus>) -> Self {
        let Ok(runtime) = Handle::try_current() else { return Self::default() };
        let (sender, wanted) = unbounded_channel();
        let mut task = Task { brokers: brokers::Brokers::new(config), exchange, status, wanted };
        runtime.spawn(async move { task.run().await });
        Self(Some(sender))
    }

    /// Has the transactions of these splits looked for. Returns at once.
    pub(super) fn find(&self, behind: Vec<Behind>) {
        if behind.is_empty() {
            return;
        }
        let unsent = match &self.0 {
            Some(sender) => sender.send(behind).map_err(|refused| refused.0).err(),
            None => Some(behind),
        };
        for behind in unsent.into_iter().flatten() {
            if let Then::Say(waiting) = &behind.then {
                waiting.say(&behind, None);
            }
        }
    }
}

struct Task {
    brokers: brokers::Brokers,
    exchange: Arc<Exchange>,
    status: Arc<SourceStatus>,
    wanted: UnboundedReceiver<Vec<Behind>>,
}

impl Task {
    /// Looks until nobody can ask any more. What has waited meanwhile is looked for together.
    async fn run(&mut self) {
        let mut later = Vec::new();
        loop {
            let mut wanted = std::mem::take(&mut later);
            if wanted.is_empty() {
                let Some(next) = self.wanted.recv().await else { return };
                wanted = next;
            }
            while let Ok(more) = self.wanted.try_recv() {
                wanted.extend(more);
            }
            let found = tokio::select! {
                found = self.brokers.find(&wanted, WITHIN) => found,
                () = collect(&mut self.wanted, &mut later) => Found::new(),
            };
            self.pass_on(wanted, &found);
        }
    }

    fn pass_on(&self, wanted: Vec<Behind>, found: &Found) {
        let mut news = Vec::new();
        for behind in wanted {
            let transaction = found.get(&behind.split).copied();
            if let Some(transaction) = transaction {
                self.status.note_transaction(behind.split.clone(), behind.position, transaction);
            }
            match (&behind.then, transaction) {
                (Then::Say(waiting), transaction) => waiting.say(&behind, transaction),
                (Then::Tell(reading), Some(transaction)) => {
                    news.push((*reading, behind.split, SplitEvent::Transaction(transaction)));
                }
                (Then::Tell(_), None) => {}
            }
        }
        if !news.is_empty() {
            self.exchange.offer(Handover::News(news));
        }
    }
}

/// Takes what comes; returns when nothing can come any more. Cancel safe.
async fn collect(wanted: &mut UnboundedReceiver<Vec<Behind>>, later: &mut Vec<Behind>) {
    while let Some(more) = wanted.recv().await {
        later.extend(more);
    }
}

impl Waiting {
    fn say(&self, behind: &Behind, transaction: Option<OpenTransaction>) {
        let Waiting { high_watermark, stop, waited, is_hanging } = self;
        let Behind { split, position: last_stable_offset, .. } = behind;
        let producer_id = transaction.map(|transaction| transaction.producer_id);
        let open_since = transaction.and_then(|transaction| transaction.since).map(tracing::field::display);
        let since = waited.as_secs();
        if *is_hanging {
            tracing::warn!(
                %split, last_stable_offset, high_watermark, stop, producer_id, open_since,
                "an open transaction hangs, since {since} s: nothing behind it can be read"
            );
        } else {
            tracing::info!(
                %split, last_stable_offset, high_watermark, stop, producer_id, open_since,
                "waiting for the end of an open transaction, since {since} s"
            );
        }
    }
}

/// Asking brokers what librdkafka does not ask them.
#[cfg(feature = "protocol")]
mod brokers {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use levada_core::time::OpenTransaction;
    use levada_core::{SplitId, Timestamp};
    use rdkafka::ClientConfig;

    use super::{Behind, Found};
    use crate::protocol::{ActiveProducer, ProtocolClient, ProtocolConfig, State, TransactionAdmin as _};

    /// Who can be asked, once somebody was.
    pub(super) struct Brokers {
        config: ClientConfig,
        client: Option<ProtocolClient>,
    }

    impl Brokers {
        pub(super) fn new(config: ClientConfig) -> Self {
            Self { config, client: None }
        }

        /// Finds the transactions in front of splits; what is not told in time is left out: one half is for whose they are,
        /// the other for since when.
        pub(super) async fn find(&mut self, behind: &[Behind], within: Duration) -> Found {
            let client = match &self.client {
                Some(client) => client,
                None => match client_of(&self.config) {
                    Ok(client) => self.client.insert(client),
                    Err(error) => {
                        tracing::debug!(%error, "nobody can be asked for the producers of open transactions");
                        return Found::new();
                    }
                },
            };
            let found = find(client, behind, within / 2).await;
            // It is asked seldom.
            client.close();
            found
        }
    }

    fn client_of(config: &ClientConfig) -> Result<ProtocolClient, crate::protocol::ConfigError> {
        ProtocolClient::new(ProtocolConfig::from_properties(config.config_map().clone())?)
    }

    async fn find(client: &ProtocolClient, behind: &[Behind], within: Duration) -> Found {
        let mut asked: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
        for Behind { split, .. } in behind {
            if let Ok(partition) = i32::try_from(split.index) {
                asked.entry(split.stream.to_string()).or_default().insert(partition);
            }
        }
        let told = match client.describe_producers_of(&asked, within).await {
            Ok(told) => told,
            Err(error) => {
                tracing::debug!(%error, "nobody tells the producers of open transactions");
                return Found::new();
            }
        };
        let of_split = |behind: &Behind| {
            let place = (behind.split.stream.to_string(), i32::try_from(behind.split.index).ok()?);
            let producer = in_front(told.get(&place)?, behind.position)?;
            Some((behind.split.clone(), producer))
        };
        let producers: BTreeMap<SplitId, i64> = behind.iter().filter_map(of_split).collect();
        let begun = begun(client, &producers.values().copied().collect(), within).await;
        let open =
            |producer_id: i64| OpenTransaction { producer_id, since: begun.get(&producer_id).copied() };
        producers.into_iter().map(|(split, producer_id)| (split, open(producer_id))).collect()
    }

    /// Returns whose transaction is the first that is open at a position or behind it.
    pub(super) fn in_front(producers: &[ActiveProducer], position: u64) -> Option<i64> {
        let open = |producer: &ActiveProducer| Some((producer.open_from?, producer.producer_id));
        let open = producers.iter().filter_map(open).filter(|(from, _)| *from >= position);
        open.min().map(|(_, producer_id)| producer_id)
    }

    /// Returns when the transactions of producers began, as far as their coordinators tell: one that was forgotten by its
    /// coordinator and hangs for ever has no beginning, and we may not be allowed to see those of others.
    async fn begun(
        client: &ProtocolClient,
        producers: &BTreeSet<i64>,
        within: Duration,
    ) -> BTreeMap<i64, Timestamp> {
        let begun = async {
            if producers.is_empty() {
                return Ok(BTreeMap::new());
            }
            let listed =
                client.list(&[State::Ongoing, State::PrepareCommit, State::PrepareAbort], within).await?;
            let ids: Vec<_> =
                listed.iter().filter(|listed| producers.contains(&listed.producer_id)).collect();
            let ids: Vec<&str> = ids.into_iter().map(|listed| listed.transactional_id.as_str()).collect();
            let described = client.describe(&ids, within).await?.into_values().flatten();
            let start = |described: crate::protocol::Described| {
                Some((described.identity.producer_id, described.start?))
            };
            Ok::<_, crate::protocol::ProtocolError>(described.filter_map(start).collect())
        };
        match tokio::time::timeout(within, begun).await {
            Ok(Ok(begun)) => begun,
            Ok(Err(error)) => {
                tracing::debug!(%error, "nobody tells since when transactions are open");
                BTreeMap::new()
            }
            Err(_) => BTreeMap::new(),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// [SRC-16] [SRC-29] nobody answers, or may be asked: it is said without, and not later than it must.
        #[tokio::test(start_paused = true)]
        async fn without_an_answer_nothing_is_found_in_time() {
            let behind = || {
                let (split, position) = (SplitId::new("t", 0), 5);
                [Behind { split, position, then: super::super::Then::Tell(super::super::ReadingId(1)) }]
            };
            let began = tokio::time::Instant::now();
            for (name, value) in [("bootstrap.servers", "127.0.0.1:1"), ("security.protocol", "sasl_ssl")] {
                let mut config = ClientConfig::new();
                config.set("bootstrap.servers", "127.0.0.1:1").set(name, value);
                let mut brokers = Brokers::new(config);
                assert_eq!(brokers.find(&behind(), super::super::WITHIN).await, Found::new());
            }
            assert!(began.elapsed() <= super::super::WITHIN, "{:?}", began.elapsed());
        }

        /// [SRC-16] of several that are open the first one is waited for; one that has ended is not.
        #[test]
        fn the_first_open_transaction_is_in_front() {
            let producer = |producer_id, open_from| ActiveProducer {
                producer_id,
                epoch: 0,
                open_from,
                last: None,
                coordinator_epoch: None,
            };
            let producers = [producer(7, Some(12)), producer(8, None), producer(9, Some(10))];
            assert_eq!(in_front(&producers, 10), Some(9));
            assert_eq!(in_front(&producers, 11), Some(7), "the one in front has ended meanwhile");
            assert_eq!(in_front(&producers[1..2], 0), None);
        }
    }
}

/// Without the protocol nobody can be asked.
#[cfg(not(feature = "protocol"))]
mod brokers {
    use std::time::Duration;

    use rdkafka::ClientConfig;

    use super::{Behind, Found};

    pub(super) struct Brokers;

    impl Brokers {
        pub(super) fn new(_: ClientConfig) -> Self {
            Self
        }

        pub(super) async fn find(&mut self, _: &[Behind], _: Duration) -> Found {
            std::future::ready(Found::new()).await
        }
    }
}

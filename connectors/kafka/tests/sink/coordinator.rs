//! The coordinator of a broker that is alone, asked by hand: what the client does not tell.

use std::sync::Arc;

use levada_core::BoxError;
use levada_kafka::sink::slot::{Describe, ProducerIdentity};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DESCRIBE_TRANSACTIONS: (i16, i16) = (65, 0);

/// At version 4: version 5 means the second generation of transactions, which the client does not speak.
const END_TRANSACTION: (i16, i16) = (26, 4);

#[derive(Debug)]
pub(crate) struct Coordinator(String);

/// What the coordinator says of a transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) error: i16,
    pub(crate) state: String,
    pub(crate) timeout_ms: i32,
    pub(crate) identity: ProducerIdentity,
}

impl Coordinator {
    pub(crate) fn at(bootstrap: &str) -> Arc<Coordinator> {
        Arc::new(Coordinator(bootstrap.to_owned()))
    }

    pub(crate) async fn ask(&self, id: &str) -> Result<Described, BoxError> {
        let mut request = vec![2];
        put(&mut request, id);
        request.push(0);
        let answer = self.call(DESCRIBE_TRANSACTIONS, &request).await?;
        // Throttle time and the length of the list; then the one state.
        let mut rest = Rest(&answer[5..]);
        let error = i16::from_be_bytes(rest.take());
        rest.text();
        let state = rest.text();
        let timeout_ms = i32::from_be_bytes(rest.take());
        rest.take::<8>();
        let producer_id = i64::from_be_bytes(rest.take());
        let epoch = i16::from_be_bytes(rest.take());
        Ok(Described { error, state, timeout_ms, identity: ProducerIdentity { producer_id, epoch } })
    }

    /// Commits a transaction in the place of its client; returns Kafka's error code.
    pub(crate) async fn commit(&self, id: &str, identity: ProducerIdentity) -> i16 {
        let mut request = Vec::new();
        put(&mut request, id);
        request.extend(identity.producer_id.to_be_bytes());
        request.extend(identity.epoch.to_be_bytes());
        request.extend([1, 0]);
        let answer = self.call(END_TRANSACTION, &request).await.expect("an answer");
        i16::from_be_bytes(Rest(&answer[4..]).take())
    }

    /// Commits, and waits until readers see it.
    pub(crate) async fn commit_visibly(&self, id: &str, identity: ProducerIdentity) {
        assert_eq!(self.commit(id, identity).await, 0);
        self.until(id, "CompleteCommit").await;
    }

    /// Waits until the coordinator says so of the id, looking every 10 ms.
    pub(crate) async fn until(&self, id: &str, state: &str) {
        let started = std::time::Instant::now();
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(10));
        while self.ask(id).await.expect("described").state != state {
            assert!(started.elapsed() < super::support::PATIENCE, "{state} in time");
            looks.tick().await;
        }
    }

    async fn call(&self, (key, version): (i16, i16), body: &[u8]) -> Result<Vec<u8>, BoxError> {
        let mut request = Vec::new();
        request.extend(key.to_be_bytes());
        request.extend(version.to_be_bytes());
        // Number of the request, client id null, no tags.
        request.extend([0, 0, 0, 7, 0xff, 0xff, 0]);
        request.extend(body);
        let mut broker = TcpStream::connect(&self.0).await?;
        broker.write_all(&(request.len() as u32).to_be_bytes()).await?;
        broker.write_all(&request).await?;
        let mut answer = vec![0; broker.read_u32().await? as usize];
        broker.read_exact(&mut answer).await?;
        // Without number and tags.
        Ok(answer.split_off(5))
    }
}

/// Kafka's code.
pub(crate) const TRANSACTIONAL_ID_NOT_FOUND: i16 = 105;

impl Describe for Coordinator {
    async fn describe(&self, id: &str) -> Result<Option<ProducerIdentity>, BoxError> {
        let described = self.ask(id).await?;
        match (described.error, described.state.as_str()) {
            (0, "Empty") => Ok(Some(described.identity)),
            (TRANSACTIONAL_ID_NOT_FOUND, _) => Ok(None),
            _ => Err(format!("{described:?}").into()),
        }
    }
}

/// A text shorter than 127 bytes: its length plus one, then itself.
fn put(request: &mut Vec<u8>, text: &str) {
    assert!(text.len() < 127);
    request.push(text.len() as u8 + 1);
    request.extend(text.as_bytes());
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk().expect("long enough");
        self.0 = rest;
        *taken
    }

    fn text(&mut self) -> String {
        let [length] = self.take();
        let (text, rest) = self.0.split_at(usize::from(length) - 1);
        self.0 = rest;
        String::from_utf8(text.to_vec()).expect("text")
    }
}

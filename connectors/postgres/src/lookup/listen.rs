//! What others say has become invalid, by `NOTIFY`.
//!
//! ```text
//!   connect ─▶ LISTEN ─▶ everything invalid, answers are kept from here on ─▶ notifications: a key, or everything
//!      ▲                                                                              │ connection lost
//!      └──────────────── everything invalid, no answer is kept ◀──────────────────────┘
//! ```
//!
//! A change is notified when it is committed. Whoever read before has its answer taken out by the notification; whoever
//! reads after it reads the change.

use std::sync::Arc;
use std::time::Duration;

use levada_core::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::Notification;
use tracing::{info, warn};

use crate::quote::Identifier;
use crate::sink::backoff::Pauses;
use crate::sink::error::Failure;
use crate::sink::session::{Session, answered};

use super::config::PostgresLookupConfig;
use super::connect::limits;
use super::{Shared, sql};

/// A connection that listens, and what it hears.
#[derive(Debug)]
pub(crate) struct Listener {
    _session: Session,
    heard: UnboundedReceiver<Notification>,
}

impl Listener {
    pub(crate) async fn connect(
        config: &PostgresLookupConfig,
        channel: &Identifier,
    ) -> Result<Self, Failure> {
        let (hearer, heard) = unbounded_channel();
        let session = Session::connect_hearing(
            &config.connection,
            limits(config),
            &config.application_name,
            Some(hearer),
        );
        let session = session.await?;
        answered(session.patience, session.client.batch_execute(&sql::listen(channel))).await?;
        Ok(Self { _session: session, heard })
    }
}

/// Applies what is heard, and connects again when the connection is lost.
pub(crate) async fn follow(shared: Arc<Shared>, channel: Identifier, first: Listener) {
    let mut listener = first;
    loop {
        while let Some(notification) = listener.heard.recv().await {
            apply(&shared, notification.payload());
        }
        shared.set_heard(false);
        warn!(%channel, "the connection that listens is lost: nothing is kept until there is another one");
        listener = again(&shared, &channel).await;
        info!(%channel, "listening again");
        shared.set_heard(true);
    }
}

async fn again(shared: &Shared, channel: &Identifier) -> Listener {
    let mut pauses = Pauses::new(Duration::from_millis(20), Duration::from_secs(5));
    loop {
        pauses.next().await;
        match Listener::connect(&shared.tower.config, channel).await {
            Ok(listener) => return listener,
            Err(failure) => warn!(error = %failure.cause, %channel, "cannot listen"),
        }
    }
}

fn apply(shared: &Shared, payload: &str) {
    let is_known = shared.tower.plan.is_canonical()
        && parts(payload, shared.tower.plan.parameters.len())
            .is_some_and(|parts| shared.invalidate(&parts).is_ok());
    // Whatever it may mean, forgetting everything is right.
    if !is_known {
        shared.clear();
    }
}

/// Reads the parts of a key: the text itself, or a JSON array of them.
fn parts(payload: &str, count: usize) -> Option<Vec<Value>> {
    if payload.is_empty() {
        return None;
    }
    if count == 1 {
        return Some(vec![Value::Text(payload.into())]);
    }
    let texts: Vec<&RawValue> = serde_json::from_str(payload).ok()?;
    let parts: Option<Vec<Value>> = texts.into_iter().map(|part| scalar(part.get())).collect();
    parts.filter(|parts| parts.len() == count)
}

/// Reads a part; numbers keep their text.
fn scalar(json: &str) -> Option<Value> {
    match json.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(json).ok().map(|text| Value::Text(text.into())),
        b't' => Some(Value::Bool(true)),
        b'f' => Some(Value::Bool(false)),
        b'-' | b'0'..=b'9' => Some(Value::Number(json.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [LKP-05] what is no key is no guess either.
    #[test]
    fn payload_is_the_key_or_nothing() {
        let text = |text: &str| Value::Text(text.into());
        assert_eq!(parts("42", 1), Some(vec![text("42")]));
        assert_eq!(parts("[1]", 1), Some(vec![text("[1]")]));
        let number = Value::Number("9007199254740993".into());
        assert_eq!(
            parts(r#"["a\"b", 9007199254740993, true]"#, 3),
            Some(vec![text("a\"b"), number, Value::Bool(true)])
        );
        for payload in ["", "a", "[1]", "[1,2,3]", "[1,null]", "[1,[2]]", "{}"] {
            assert_eq!(parts(payload, 2), None, "{payload}");
        }
    }
}

//! The brokers' side: how they are reached, and what they know of ids with the prefix.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use levada_kafka::protocol::{
    Described, ProtocolClient, ProtocolConfig, ProtocolError, State, TransactionAdmin as _,
};

use super::{Failure, Place};
use crate::config::interpolate;

/// How long one step may take, retries included.
const WITHIN: Duration = Duration::from_secs(30);
/// So many ids are asked about in one request.
const AT_ONCE: usize = 500;

impl Place {
    /// Connects to nobody yet.
    pub(super) fn client(&self) -> Result<ProtocolClient, Failure> {
        let mut properties = match &self.properties {
            Some(file) => read_properties(file)?,
            None => BTreeMap::new(),
        };
        if let Some(bootstrap) = &self.bootstrap {
            properties.insert("bootstrap.servers".to_owned(), bootstrap.clone());
        }
        properties.entry("client.id".to_owned()).or_insert_with(|| "levada-transactions".to_owned());
        Ok(ProtocolClient::new(ProtocolConfig::from_properties(properties)?)?)
    }

    /// Asks for all ids with the prefix: those that are open, and `named` ones in whatever state; all with `is_all`.
    pub(super) async fn known_to_brokers(
        &self,
        client: &ProtocolClient,
        named: &[&str],
        is_all: bool,
    ) -> Result<BTreeMap<String, Option<Described>>, Failure> {
        let states: &[State] = match is_all {
            true => &[],
            false => &[State::Ongoing, State::PrepareCommit, State::PrepareAbort],
        };
        let prefix = format!("{}.", self.prefix);
        let listed = client.list(states, WITHIN).await.map_err(asking("list the transactions"))?;
        let listed = listed.into_iter().map(|listed| listed.transactional_id);
        let mut ids: Vec<String> = listed.filter(|id| id.starts_with(&prefix)).collect();
        ids.extend(named.iter().map(|id| (*id).to_owned()));
        ids.sort();
        ids.dedup();
        let mut known = BTreeMap::new();
        for some in ids.chunks(AT_ONCE) {
            let some: Vec<&str> = some.iter().map(String::as_str).collect();
            known.extend(client.describe(&some, WITHIN).await.map_err(asking("describe transactions"))?);
        }
        Ok(known)
    }
}

pub(super) fn asking(doing: &'static str) -> impl FnOnce(ProtocolError) -> Failure {
    move |cause| Failure::Brokers { doing, cause: Box::new(cause) }
}

/// Reads `name=value` lines, as Kafka's own tools do; `#` and `!` begin remarks. Values are never shown.
fn read_properties(file: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|cause| Failure::File { file: name.clone(), cause })?;
    let mut properties = BTreeMap::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if content.is_empty() || content.starts_with(['#', '!']) {
            continue;
        }
        let wrong = |reason: String| Failure::Property { file: name.clone(), line, reason };
        let (property, value) =
            content.split_once('=').ok_or_else(|| wrong("expected `name=value`".to_owned()))?;
        let value = interpolate(value.trim()).map_err(wrong)?;
        properties.insert(property.trim().to_owned(), value);
    }
    Ok(properties)
}

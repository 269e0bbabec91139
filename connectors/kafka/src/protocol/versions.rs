//! Which versions of which requests a broker speaks.

use std::collections::BTreeMap;

use kafka_protocol::messages::ApiVersionsResponse;

use super::address::Address;
use super::api::{Api, VersionSpan};
use super::error::ProtocolError;

/// What a broker has said of itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Versions {
    spans: BTreeMap<i16, VersionSpan>,
}

impl Versions {
    pub(super) fn told(answer: &ApiVersionsResponse) -> Self {
        let span = |min, max| VersionSpan { min, max };
        let spans = answer.api_keys.iter().map(|api| (api.api_key, span(api.min_version, api.max_version)));
        Self { spans: spans.collect() }
    }

    /// Chooses the newest version of a request that both sides speak.
    pub(super) fn choose<A: Api>(&self, broker: &Address) -> Result<i16, ProtocolError> {
        let theirs = self.spans.get(&A::KEY).copied();
        let both = theirs.and_then(|theirs| A::OURS.newest_in_both(theirs));
        both.ok_or_else(|| ProtocolError::Unsupported {
            broker: broker.clone(),
            api: A::NAME,
            theirs,
            ours: A::OURS,
            needed_for: A::NEEDED_FOR,
        })
    }
}

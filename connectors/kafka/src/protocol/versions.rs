//! Which version of a request both sides know.

use std::collections::BTreeMap;

use kafka_protocol::messages::ApiVersionsResponse;
use kafka_protocol::protocol::{Request, VersionRange};
use thiserror::Error;

use super::api;

/// A broker offers no version of a request that we can use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("it offers {api} {}, and {ours} is needed: {needed_for}", offered.as_deref().unwrap_or("not at all"))]
pub struct BrokerTooOld {
    /// The request.
    pub api: &'static str,
    /// The versions that it offers, if any.
    pub offered: Option<String>,
    /// Those that we know.
    pub ours: String,
    /// What cannot be done without it, and since when brokers can.
    pub needed_for: &'static str,
}

/// What a broker offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Versions(BTreeMap<i16, (i16, i16)>);

impl Versions {
    pub(super) fn of(response: &ApiVersionsResponse) -> Self {
        let offered = response.api_keys.iter();
        Self(offered.map(|offer| (offer.api_key, (offer.min_version, offer.max_version))).collect())
    }

    /// Chooses the highest version that both sides know and that is not above `at_most`.
    pub(super) fn choose<R: Request>(&self, at_most: i16) -> Result<i16, BrokerTooOld> {
        let ours = VersionRange { min: R::VERSIONS.min, max: R::VERSIONS.max.min(at_most) };
        let offered = self.0.get(&R::KEY).map(|&(min, max)| VersionRange { min, max });
        match offered.map(|offered| ours.intersect(&offered)) {
            Some(both) if !both.is_empty() => Ok(both.max),
            _ => Err(BrokerTooOld {
                api: api::name(R::KEY),
                offered: offered.map(|range| format!("in versions {range}")),
                ours: format!("{ours}"),
                needed_for: api::needed_for(R::KEY),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{DescribeTransactionsRequest, EndTxnRequest};

    use super::*;

    fn offering(key: i16, min: i16, max: i16) -> Versions {
        Versions([(key, (min, max))].into())
    }

    /// [KSK-09] version 5 of EndTxn is another protocol: it is never chosen.
    #[test]
    fn end_is_sent_at_version_four_at_most() {
        let end = |min, max| offering(EndTxnRequest::KEY, min, max).choose::<EndTxnRequest>(4);
        assert_eq!(end(0, 5), Ok(4));
        assert_eq!(end(0, 3), Ok(3));
        assert!(end(5, 6).is_err(), "a broker that knows nothing else is refused");
    }

    /// [KSK-19] [KSK-21] a broker that cannot describe transactions is refused, and the reason says what is missing.
    #[test]
    fn broker_without_a_request_is_refused_by_its_name() {
        let refused = Versions::default()
            .choose::<DescribeTransactionsRequest>(i16::MAX)
            .expect_err("nothing is offered");
        let text = refused.to_string();
        assert!(text.contains("DescribeTransactions not at all") && text.contains("3.0"), "{text}");
    }
}

//! Finding out which broker is in charge of a transactional id or a group.

use kafka_protocol::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::{Request as _, StrBytes};
use tokio::time::Instant;

use super::admin::Admin;
use super::api;
use super::error::{ErrorCode, ProtocolError};

/// What is coordinated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Group,
    Transaction,
}

impl Admin {
    pub(super) async fn find_coordinator(
        &self,
        kind: Kind,
        key: &str,
        until: Instant,
    ) -> Result<String, ProtocolError> {
        let name = StrBytes::from_string(key.to_owned());
        let number = i8::from(kind == Kind::Transaction);
        // Up to version 3 one key, from 4 on a list: the codec writes what the chosen version has.
        let single = FindCoordinatorRequest::default().with_key(name.clone()).with_key_type(number);
        let (asked, answer) = match self.ask_listed(name, number, until).await {
            Err(ProtocolError::Malformed { .. }) => self.ask_any(&single, until).await?,
            found => found?,
        };
        found(answer).map_err(|code| ProtocolError::Refused {
            address: asked,
            api: api::name(FindCoordinatorRequest::KEY),
            subject: key.to_owned(),
            code,
        })
    }

    async fn ask_listed(
        &self,
        name: StrBytes,
        number: i8,
        until: Instant,
    ) -> Result<(String, FindCoordinatorResponse), ProtocolError> {
        let request =
            FindCoordinatorRequest::default().with_key_type(number).with_coordinator_keys(vec![name]);
        self.ask_any(&request, until).await
    }
}

fn found(answer: FindCoordinatorResponse) -> Result<String, ErrorCode> {
    let (code, host, port) = match answer.coordinators.into_iter().next() {
        Some(found) => (found.error_code, found.host, found.port),
        None => (answer.error_code, answer.host, answer.port),
    };
    if code == 0 { Ok(super::metadata::address(&host, port)) } else { Err(ErrorCode(code)) }
}

//! FindCoordinator: which broker decides about a transaction or a group.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::FindCoordinatorRequest;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::protocol::StrBytes;

use super::address::Address;
use super::client::ProtocolClient;
use super::code::ErrorCode;
use super::error::ProtocolError;
use super::known::CoordinatorOf;
use super::retry::Call;

impl ProtocolClient {
    /// Returns the number of the broker that coordinates a consumer group, asked freshly.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub async fn find_group_coordinator(&self, group: &str, within: Duration) -> Result<i32, ProtocolError> {
        self.find_freshly(CoordinatorOf::Group, group, within).await
    }

    pub(super) async fn find_freshly(
        &self,
        of: CoordinatorOf,
        key: &str,
        within: Duration,
    ) -> Result<i32, ProtocolError> {
        let mut call = Call::new(format!("FindCoordinator of {key}"), within);
        loop {
            self.known().forget_coordinator(of, key);
            match self.locate_coordinator(of, key, &call).await {
                Ok(coordinator) => return Ok(coordinator),
                Err(error) => call.pause(error).await?,
            }
        }
    }

    pub(super) async fn locate_coordinator(
        &self,
        of: CoordinatorOf,
        key: &str,
        call: &Call,
    ) -> Result<i32, ProtocolError> {
        let found = self.locate_coordinators(of, &[key], call).await?;
        found.into_keys().next().ok_or_else(|| left_out(call, key))
    }

    /// Returns the coordinators of keys, each with its keys: those that are known, and the others asked for in one request.
    pub(super) async fn locate_coordinators<'k>(
        &self,
        of: CoordinatorOf,
        keys: &[&'k str],
        call: &Call,
    ) -> Result<BTreeMap<i32, Vec<&'k str>>, ProtocolError> {
        let mut found: BTreeMap<i32, Vec<&str>> = BTreeMap::new();
        let mut wanted = Vec::new();
        for key in keys {
            match self.known().coordinator(of, key) {
                Some(coordinator) => found.entry(coordinator).or_default().push(key),
                None => wanted.push(*key),
            }
        }
        if wanted.is_empty() {
            return Ok(found);
        }
        let told = self.ask_for_coordinators(of, &wanted, call).await?;
        for key in wanted {
            let coordinator = told.get(key).ok_or_else(|| left_out(call, key))?;
            let id = self.note(of, key, coordinator, call)?;
            found.entry(id).or_default().push(key);
        }
        Ok(found)
    }

    async fn ask_for_coordinators(
        &self,
        of: CoordinatorOf,
        keys: &[&str],
        call: &Call,
    ) -> Result<BTreeMap<String, Coordinator>, ProtocolError> {
        let keys = keys.iter().map(|key| StrBytes::from_string((*key).to_owned())).collect();
        let request =
            FindCoordinatorRequest::default().with_key_type(of.key_type()).with_coordinator_keys(keys);
        let answer = self.ask_any(&request, call).await?;
        Ok(answer.coordinators.into_iter().map(|told| (told.key.to_string(), told)).collect())
    }

    fn note(
        &self,
        of: CoordinatorOf,
        key: &str,
        told: &Coordinator,
        call: &Call,
    ) -> Result<i32, ProtocolError> {
        if let Some(code) = ErrorCode::of(told.error_code) {
            let message = told.error_message.as_ref().map(ToString::to_string);
            return Err(ProtocolError::Refused { request: call.told.clone(), code, message });
        }
        let address = Address::told(&told.host, told.port).map_err(|reason| self.malformed(call, reason))?;
        self.known().note_coordinator(of, key, told.node_id.0, address);
        Ok(told.node_id.0)
    }

    /// An answer that was read well and makes no sense.
    pub(super) fn malformed(&self, call: &Call, reason: String) -> ProtocolError {
        let broker = self.known().candidates().into_iter().next();
        let broker = broker.unwrap_or_else(|| Address { host: "unknown".to_owned(), port: 0 });
        ProtocolError::Malformed { broker, request: call.told.clone(), reason }
    }
}

fn left_out(call: &Call, key: &str) -> ProtocolError {
    // As if there were none now.
    ProtocolError::Refused {
        request: call.told.clone(),
        code: ErrorCode::COORDINATOR_NOT_AVAILABLE,
        message: Some(format!("no coordinator was named for {key}")),
    }
}

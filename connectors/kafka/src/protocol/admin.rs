//! The client: who is in charge, asked until there is an answer or no time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kafka_protocol::protocol::Request;
use tokio::time::Instant;

use super::api;
use super::brokers::Brokers;
use super::coordinator::Kind;
use super::error::{ErrorCode, ProtocolError};
use super::security::Security;

/// How long one broker is waited for, before another way is tried.
const ONE_ANSWER: Duration = Duration::from_secs(5);

/// Asks the brokers of a cluster about transactions, and ends them.
///
/// All calls have a deadline and may be dropped at any time; see the module about what a drop leaves behind.
#[derive(Debug)]
pub struct Admin {
    pub(super) brokers: Brokers,
    coordinators: Mutex<HashMap<(Kind, String), String>>,
}

impl Admin {
    /// Prepares a client; nothing is connected yet. `bootstrap` has addresses with commas between them.
    pub fn new(bootstrap: &str, security: Security, client_id: &str) -> Self {
        Self { brokers: Brokers::new(bootstrap, security, client_id), coordinators: Mutex::default() }
    }

    /// Asks `address` once.
    pub(super) async fn ask_once<R: Request>(
        &self,
        address: &str,
        request: &R,
        at_most: i16,
        until: Instant,
    ) -> Result<R::Response, ProtocolError> {
        let until = until.min(Instant::now() + ONE_ANSWER);
        let asked = self.brokers.ask(address, request, at_most, until).await;
        if asked.as_ref().is_err_and(ProtocolError::is_about_who_is_in_charge) {
            self.brokers.forget(address);
        }
        asked
    }

    /// Asks any broker that answers, each in turn.
    pub(super) async fn ask_any<R: Request>(
        &self,
        request: &R,
        until: Instant,
    ) -> Result<(String, R::Response), ProtocolError> {
        let mut last = None;
        for address in self.brokers.bootstrap() {
            match self.ask_once(address, request, i16::MAX, until).await {
                Ok(answer) => return Ok((address.clone(), answer)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| ProtocolError::Connect {
            address: "(no address)".to_owned(),
            cause: std::io::ErrorKind::InvalidInput.into(),
        }))
    }

    /// Asks the coordinator of `key`. `code` finds its refusal in the answer.
    pub(super) async fn ask_coordinator<R: Request>(
        &self,
        kind: Kind,
        key: &str,
        request: &R,
        code: impl Fn(&R::Response) -> Option<i16> + Send,
        until: Instant,
    ) -> Result<R::Response, ProtocolError> {
        let address = self.coordinator(kind, key, until).await?;
        let asked = self.ask_once(&address, request, i16::MAX, until).await;
        let answer = asked.inspect_err(|_| self.forget_coordinator(kind, key))?;
        match code(&answer).map(ErrorCode).filter(|code| code.0 != 0) {
            None => Ok(answer),
            Some(code) => {
                if code.is_about_the_coordinator() {
                    self.forget_coordinator(kind, key);
                }
                let subject = key.to_owned();
                Err(ProtocolError::Refused { address, api: api::name(R::KEY), subject, code })
            }
        }
    }

    /// Returns who coordinates `key`, as it was told last.
    pub(super) async fn coordinator(
        &self,
        kind: Kind,
        key: &str,
        until: Instant,
    ) -> Result<String, ProtocolError> {
        let known = self.known_coordinators().get(&(kind, key.to_owned())).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let found = self.find_coordinator(kind, key, until).await?;
        self.known_coordinators().insert((kind, key.to_owned()), found.clone());
        Ok(found)
    }

    pub(super) fn forget_coordinator(&self, kind: Kind, key: &str) {
        self.known_coordinators().remove(&(kind, key.to_owned()));
    }

    fn known_coordinators(&self) -> std::sync::MutexGuard<'_, HashMap<(Kind, String), String>> {
        self.coordinators.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

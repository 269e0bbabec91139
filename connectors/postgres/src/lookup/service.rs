//! The lookup as a `tower` service.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use levada_core::Value;
use tower_service::Service;

use super::{Found, LookupError, PostgresLookup};

/// Looks one key up. It is always ready: a call waits for room on a connection within its own time.
impl Service<Vec<Value>> for PostgresLookup {
    type Response = Found;
    type Error = LookupError;
    type Future = Pin<Box<dyn Future<Output = Result<Found, LookupError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LookupError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, key: Vec<Value>) -> Self::Future {
        let lookup = self.clone();
        Box::pin(async move { lookup.get(&key).await })
    }
}

//! The HTTP server: what can be seen of a running pipeline.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use thiserror::Error;
use tokio::net::TcpListener;

use crate::observe::{Observed, metrics};

/// Metrics cannot be served.
#[derive(Debug, Error)]
#[error(
    "metrics cannot be served at {address}; name another address by \"http\" in the pipeline file, or set it to off"
)]
pub(crate) struct HttpError {
    address: SocketAddr,
    #[source]
    cause: io::Error,
}

/// An address that is taken, with nobody to answer there yet.
#[derive(Debug)]
pub(crate) struct Server(TcpListener);

impl Server {
    /// Takes an address.
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, HttpError> {
        let failed = |cause| HttpError { address, cause };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        // With port 0, the system has chosen one.
        let at = listener.local_addr().map_err(failed)?;
        tracing::info!("metrics at http://{at}/metrics");
        Ok(Self(listener))
    }

    /// Answers until the future is dropped.
    pub(crate) async fn serve(self, observed: Observed) {
        let router = Router::new().route("/metrics", get(scrape)).with_state(observed);
        // It ends only where it cannot answer any more, and then the pipeline goes on.
        if let Err(error) = axum::serve(self.0, router).await {
            tracing::error!(%error, "metrics are not served any more");
        }
    }
}

async fn scrape(State(observed): State<Observed>) -> Response {
    match metrics::text(observed.observe()) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

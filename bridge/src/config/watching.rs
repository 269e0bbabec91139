//! The parts of the pipeline file about what can be seen of a running pipeline.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::fields::Field;
use super::time::some_time;

/// Where metrics are served unless the pipeline file says otherwise: for this machine alone.
pub const DEFAULT_HTTP: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);

/// How often a pipeline logs where it stands, unless its file says otherwise.
pub const DEFAULT_LOG_EVERY: Duration = Duration::from_secs(10);

/// Reads `off` or an address.
pub(super) fn http(field: &Field<'_>) -> Option<Option<SocketAddr>> {
    let text = field.text()?;
    if text == "off" {
        return Some(None);
    }
    let address = text.parse().ok();
    if address.is_none() {
        field.error(format!(
            "{text:?} is neither \"off\" nor an address with a port such as {DEFAULT_HTTP}, 0.0.0.0:9464 or \"[::1]:9464\""
        ));
    }
    address.map(Some)
}

/// Reads how often a pipeline logs where it stands.
pub(super) fn log_every(field: &Field<'_>) -> Option<Duration> {
    let section = field.section()?;
    let every = section.optional("every").map_or(Some(DEFAULT_LOG_EVERY), |field| some_time(&field));
    section.finish();
    every
}

//! The server's settings, as `name=value`: later ones win.

use super::PostgresBuilder;
use super::secured::Secrets;

/// Settings for tests; a builder may replace them.
const FOR_TESTS: &[(&str, &str)] = &[
    // The servers are killed, the machine is not: what a killed server had written is in the page cache.
    ("fsync", "off"),
    ("max_connections", "200"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("log_line_prefix", "%m [%p] %d "),
    // A standby that lost its primary looks for it again at once.
    ("wal_retrieve_retry_interval", "200ms"),
];

/// Returns the settings of a server, whoever runs it.
pub(super) fn settings(builder: &PostgresBuilder, port: u16) -> Vec<String> {
    let mut settings: Vec<String> = FOR_TESTS.iter().map(|(name, value)| format!("{name}={value}")).collect();
    settings.extend(builder.settings.iter().map(|(name, value)| format!("{name}={value}")));
    settings.extend(["listen_addresses=127.0.0.1".to_owned(), format!("port={port}")]);
    settings
}

/// Returns the settings of a process of this machine.
pub(super) fn local_settings(builder: &PostgresBuilder, port: u16, secrets: Option<&Secrets>) -> Vec<String> {
    let mut settings = settings(builder, port);
    settings.extend([
        "unix_socket_directories=".to_owned(),
        // In the data folder, so that nothing stays behind in /dev/shm after a kill.
        "dynamic_shared_memory_type=mmap".to_owned(),
        // Our log is its standard error.
        "logging_collector=off".to_owned(),
    ]);
    settings.extend(secrets.into_iter().flat_map(Secrets::settings));
    settings
}

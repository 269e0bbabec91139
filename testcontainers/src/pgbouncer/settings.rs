//! The pooler's `pgbouncer.ini`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::postgres::USER;

/// Settings for tests; a builder may replace them.
const FOR_TESTS: &[(&str, &str)] = &[
    ("pool_mode", "transaction"),
    ("auth_type", "scram-sha-256"),
    // Who is not in the file of users is asked for at the server, with that user's rights.
    ("auth_user", USER),
    // Who may use the console, the database `pgbouncer`.
    ("admin_users", USER),
    // A server that refuses plaintext is reached too.
    ("server_tls_sslmode", "prefer"),
    // After a restart of the server the next attempt would be 15 seconds away.
    ("server_login_retry", "0.2"),
];

/// Returns the text of the file. Every database of the server is there under its own name.
pub(super) fn text(chosen: &BTreeMap<String, String>, server: &str, port: u16, users: &Path) -> String {
    let (server_host, server_port) = server.split_once(':').unwrap_or((server, "5432"));
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut settings: BTreeMap<String, String> = FOR_TESTS.iter().map(own).collect();
    settings.extend(chosen.clone());
    settings.extend([
        ("listen_addr".to_owned(), "127.0.0.1".to_owned()),
        ("listen_port".to_owned(), port.to_string()),
        ("unix_socket_dir".to_owned(), String::new()),
        ("auth_file".to_owned(), users.display().to_string()),
    ]);
    // Our log is its standard error; a process number in a file is of no use to us.
    settings.retain(|name, _| name != "logfile" && name != "pidfile");
    let lines: String = settings.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    format!("[databases]\n* = host={server_host} port={server_port}\n[pgbouncer]\n{lines}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::text;

    #[test]
    fn chosen_settings_replace_defaults_but_not_addresses() {
        let chosen = [("pool_mode", "session"), ("listen_port", "6432"), ("max_client_conn", "7")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let text = text(&BTreeMap::from(chosen), "127.0.0.1:20001", 20002, Path::new("/tmp/users.txt"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..3], ["[databases]", "* = host=127.0.0.1 port=20001", "[pgbouncer]"]);
        for expected in ["pool_mode = session", "listen_port = 20002", "max_client_conn = 7"] {
            assert!(lines.contains(&expected), "{expected}: {text}");
        }
        assert!(!text.contains("transaction") && !text.contains("6432"), "{text}");
    }
}

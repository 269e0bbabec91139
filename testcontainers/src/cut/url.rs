//! The address in a URL.

use std::ops::Range;

/// Replaces host and port in a URL by `address`; user, password, path and parameters stay.
pub(super) fn with_address(url: &str, address: &str) -> String {
    let place = place(url);
    format!("{}{address}{}", &url[..place.start], &url[place.end..])
}

/// Returns host and port of a URL; of what has neither scheme nor user nor path, all.
pub(super) fn address(url: &str) -> &str {
    &url[place(url)]
}

fn place(url: &str) -> Range<usize> {
    let authority = url.find("://").map_or(0, |scheme| scheme + 3);
    let end = url[authority..].find(['/', '?', '#']).map_or(url.len(), |length| authority + length);
    // The last one: whoever wrote it plainly into a password meant it so.
    let start = url[authority..end].rfind('@').map_or(authority, |at| authority + at + 1);
    start..end
}

#[cfg(test)]
mod tests {
    use super::{address, with_address};

    /// [TST-04]
    #[test]
    fn only_host_and_port_of_a_url_are_replaced() {
        for (url, expected) in [
            ("postgres://u:p@h:1/d", "postgres://u:p@127.0.0.1:9/d"),
            ("postgres://u:p@h/d?sslmode=disable", "postgres://u:p@127.0.0.1:9/d?sslmode=disable"),
            ("postgresql://u:p@[::1]:5432/d", "postgresql://u:p@127.0.0.1:9/d"),
            ("postgres://[fe80::1]/d", "postgres://127.0.0.1:9/d"),
            ("postgres://u:a@b@h:1?a=b@c", "postgres://u:a@b@127.0.0.1:9?a=b@c"),
            ("postgres://h:1,i:2/d", "postgres://127.0.0.1:9/d"),
            ("h:1", "127.0.0.1:9"),
        ] {
            assert_eq!(with_address(url, "127.0.0.1:9"), expected);
            assert_eq!(address(expected), "127.0.0.1:9");
        }
        assert_eq!(address("postgresql://u:p@[::1]:5432/d"), "[::1]:5432");
    }
}

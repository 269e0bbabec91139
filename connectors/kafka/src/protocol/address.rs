//! Where a broker listens.

use std::fmt;

use super::config::ConfigError;

/// The port of a broker whose address names none.
const DEFAULT_PORT: u16 = 9092;

/// A broker's host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// A name or an IP address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl Address {
    /// Reads `bootstrap.servers`: `host:port` with commas between, each perhaps behind `protocol://`, the port 9092 unless
    /// given.
    pub(super) fn read_all(list: &str) -> Result<Vec<Address>, ConfigError> {
        let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
        let addresses: Vec<Address> = parts.map(Address::read).collect::<Result<_, _>>()?;
        if addresses.is_empty() { Err(ConfigError::NoBootstrap) } else { Ok(addresses) }
    }

    fn read(text: &str) -> Result<Address, ConfigError> {
        let bad = || ConfigError::Address { address: text.to_owned() };
        let place = text.split_once("://").map_or(text, |(_, place)| place);
        let (host, port) = match place.strip_prefix('[') {
            Some(bracketed) => {
                let (host, behind) = bracketed.split_once(']').ok_or_else(bad)?;
                (host, behind.strip_prefix(':'))
            }
            None => match place.rsplit_once(':') {
                // Without brackets, an address of IPv6 has no port.
                Some((host, port)) if !host.contains(':') => (host, Some(port)),
                _ => (place, None),
            },
        };
        let port = port.map_or(Ok(DEFAULT_PORT), |port| port.parse().map_err(|_| bad()))?;
        if host.is_empty() { Err(bad()) } else { Ok(Address { host: host.to_owned(), port }) }
    }

    /// Takes what a broker says of another one.
    pub(super) fn told(host: &str, port: i32) -> Result<Address, String> {
        match u16::try_from(port) {
            Ok(port) if !host.is_empty() => Ok(Address { host: host.to_owned(), port }),
            _ => Err(format!("a broker at {host:?}, port {port}")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [KSK-21] as librdkafka reads the property.
    #[test]
    fn addresses_are_read_with_and_without_port_and_protocol() {
        let printed = |list| -> Vec<String> {
            Address::read_all(list).expect(list).iter().map(Address::to_string).collect()
        };
        assert_eq!(printed("a:1, b ,PLAINTEXT://c:3"), ["a:1", "b:9092", "c:3"]);
        assert_eq!(printed("[::1]:5,[::2],::3"), ["[::1]:5", "[::2]:9092", "[::3]:9092"]);
        for bad in ["", " , ", "a:port", "a:70000", ":9092", "[::1"] {
            Address::read_all(bad).expect_err(bad);
        }
    }
}

//! Ports that stay ours across restarts.
//!
//! A port that the system picks (bind to port 0) may be given to any outgoing connection while the server is down. So
//! ports are taken from below the range for outgoing connections, each guarded by a lock on a file that lives as long as
//! its owner: neither another test process nor a passing connection takes it between a kill and a restart.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};

use crate::Error;
use crate::cache;
use crate::error::Doing;
use crate::names::unique_name;

/// Below 32768, where Linux starts to number outgoing connections unless told otherwise.
const FIRST: u16 = 20_000;
const END: u16 = 32_000;

/// How often another port is tried when somebody took ours between the look and the bind.
const ATTEMPTS: usize = 5;

/// Starts something on ports that it reserves, and again on others as long as somebody was faster.
pub(crate) fn on_free_ports<T>(mut start: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut attempt = 1;
    loop {
        match start() {
            Err(Error::PortTaken { .. }) if attempt < ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

/// A port on 127.0.0.1 that no other handle, in this process or another, uses.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// The lock ends with the file: on drop, or with this process.
    _lock: File,
}

impl Port {
    /// Takes a port on which nobody listens.
    pub(crate) fn reserve() -> Result<Port, Error> {
        let folder = cache::folder()?.join("ports");
        fs::create_dir_all(&folder).doing("create the folder", &folder)?;
        let span = END - FIRST;
        // Each search starts elsewhere, so that parallel tests seldom meet.
        let start = start_within(span);
        for step in 0..span {
            let number = FIRST + (start + step) % span;
            let path = folder.join(number.to_string());
            let lock = File::create(&path).doing("create the lock", &path)?;
            if lock.try_lock().is_ok() && is_free(number) {
                return Ok(Port { number, _lock: lock });
            }
        }
        Err(Error::NoFreePort { from: FIRST, to: END })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Returns a number below `span` that differs from call to call.
fn start_within(span: u16) -> u16 {
    let name = unique_name("");
    let bits = name.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    // The remainder is below a u16.
    (bits % u64::from(span)) as u16
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{ATTEMPTS, Error, Port, on_free_ports};

    /// [TST-01]
    #[test]
    fn a_reserved_port_is_not_given_twice() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve().unwrap()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
    }

    /// [TST-01] Somebody may take a port between our look and the bind.
    #[test]
    fn other_ports_are_tried_but_not_for_ever_and_for_no_other_reason() {
        let mut starts = 0;
        let mut start = |is_free: fn(usize) -> bool, otherwise: fn() -> Error| {
            starts = 0;
            let outcome = on_free_ports(|| {
                starts += 1;
                if is_free(starts) { Ok(()) } else { Err(otherwise()) }
            });
            (outcome.is_ok(), starts)
        };
        let taken = || Error::PortTaken { server: "the server" };
        assert_eq!(start(|starts| starts == 3, taken), (true, 3));
        assert_eq!(start(|_| false, taken), (false, ATTEMPTS));
        assert_eq!(start(|_| false, || Error::NoCacheFolder), (false, 1));
    }
}

//! The end of a socket, so that its peer loses nothing that was forwarded to it.
//!
//! A reset makes our kernel throw away what it has not sent yet, and may make the peer's throw away what its program has
//! not read. So a client is reset only after its kernel has taken everything, and a server is not reset by a cut at all:
//! it sees the end of file, and what it still says is read and discarded until it closes.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::rule::RuleState;

/// How long the peer's kernel may take for what was forwarded before it is reset all the same: a client that reads needs no
/// time worth mentioning, one that does not must not hold up the end.
const TAKING: Duration = Duration::from_secs(3);

/// How long a server is drained: it closes at once when it sees the end of file, unless it is busy.
const DRAINING: Duration = Duration::from_secs(1);

/// The pause between two looks at what the peer's kernel has taken; nothing tells us.
const STEP: Duration = Duration::from_millis(2);

/// A socket that is being ended.
#[derive(Debug)]
pub(super) struct Farewell {
    socket: TcpStream,
    manner: Manner,
    deadline: Instant,
    /// Rules whose action this is.
    rules: VecDeque<Arc<RuleState>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Reset it when the peer's kernel has taken everything.
    Reset,
    /// The end of file is sent: read until the peer closes, then close.
    Drain,
}

impl Farewell {
    /// Begins to reset a socket; the rules are told when it is done.
    pub(super) fn reset(socket: TcpStream, rules: VecDeque<Arc<RuleState>>, now: Instant) -> Farewell {
        Farewell { socket, manner: Manner::Reset, deadline: now + TAKING, rules }
    }

    /// Tells the peer the end of file and begins to drain what it still says.
    pub(super) fn drain(socket: TcpStream, now: Instant) -> Farewell {
        // It fails only on a socket whose peer is gone, and that is drained at once.
        socket.shutdown(Shutdown::Write).ok();
        Farewell { socket, manner: Manner::Drain, deadline: now + DRAINING, rules: VecDeque::new() }
    }

    /// Goes on; tells whether the socket may be dropped.
    pub(super) fn go_on(&mut self, now: Instant) -> bool {
        let done = match self.manner {
            Manner::Reset => has_taken_all(&self.socket),
            Manner::Drain => has_closed(&self.socket),
        };
        if !done && now < self.deadline {
            return false;
        }
        if self.manner == Manner::Reset {
            reset_on_close(&self.socket);
        }
        true
    }

    /// Closes the socket and tells the rules whose action that was.
    pub(super) fn close(self) {
        drop(self.socket);
        self.rules.iter().for_each(|rule| rule.tell());
    }

    /// Returns the socket if an event at it is waited for.
    pub(super) fn reads(&self) -> Option<&TcpStream> {
        (self.manner == Manner::Drain).then_some(&self.socket)
    }

    /// Returns when to look again without an event.
    pub(super) fn due(&self, now: Instant) -> Instant {
        match self.manner {
            Manner::Reset => now + STEP,
            Manner::Drain => self.deadline,
        }
    }
}

/// Resets a connection now; what its peer's kernel has not taken is lost.
pub(super) fn reset_now(socket: TcpStream) {
    reset_on_close(&socket);
}

fn reset_on_close(socket: &TcpStream) {
    // It cannot fail on a socket; if it did, the peer would see the end of file.
    SockRef::from(socket).set_linger(Some(Duration::ZERO)).ok();
}

fn has_closed(mut socket: &TcpStream) -> bool {
    let mut discarded = [0; 4096];
    loop {
        match socket.read(&mut discarded) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// Tells whether the peer's kernel has acknowledged every byte. Where that cannot be known, it is taken to have.
fn has_taken_all(socket: &TcpStream) -> bool {
    let (Ok(local), Ok(peer)) = (socket.local_addr(), socket.peer_addr()) else { return true };
    let table = match local {
        SocketAddr::V4(_) => "/proc/net/tcp",
        SocketAddr::V6(_) => "/proc/net/tcp6",
    };
    let table = fs::read_to_string(table).unwrap_or_default();
    unacknowledged(&table, local.port(), peer.port()).is_none_or(|bytes| bytes == 0)
}

/// Finds, in the kernel's table of TCP sockets, how many bytes one between two ports has sent without an answer. The
/// ports tell it: ours or the peer's is one that nobody else uses at the same time.
fn unacknowledged(table: &str, local: u16, peer: u16) -> Option<u64> {
    let (local, peer) = (format!(":{local:04X}"), format!(":{peer:04X}"));
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, from, to, _, queues, ..] = fields[..] else { return None };
        if !from.ends_with(&local) || !to.ends_with(&peer) {
            return None;
        }
        u64::from_str_radix(queues.split_once(':')?.0, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::unacknowledged;

    /// [TST-04]
    #[test]
    fn the_send_queue_is_found_by_its_ports() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n   \
             1: 0100007F:1F90 0100007F:A001 01 000001FF:00000002 01:00000000 00000000     0\n   \
             2: 0100007F:A001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0\n";
        assert_eq!(unacknowledged(table, 0x1F90, 0xA001), Some(0x1FF));
        assert_eq!(unacknowledged(table, 0xA001, 0x1F90), Some(0));
        assert_eq!(unacknowledged(table, 0x1F90, 0xA002), None);
    }
}

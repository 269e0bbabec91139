//! The end of a socket, so that its peer loses nothing that was forwarded to it.
//!
//! A reset makes our kernel throw away what it has not sent yet, and may make the peer's throw away what its program has
//! not read. So a client is reset only after its kernel has taken everything, and a server is not reset by a cut at all:
//! it sees the end of file, and what it still says is read and discarded until it closes.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::rule::RuleState;
use super::send_queues::SendQueues;

/// How long the peer's kernel may take for what was forwarded before it is reset all the same: a client that reads needs no
/// time worth mentioning, one that does not must not hold up the end.
const TAKING: Duration = Duration::from_secs(3);

/// How long a server is drained: it closes at once when it sees the end of file, unless it is busy.
const DRAINING: Duration = Duration::from_secs(1);

/// How many reads drain a server in one turn: what it still says may have no end, and others wait for their turn.
const READS: usize = 64;

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

    /// Goes on; tells whether the socket may be dropped. The queues are those of this turn.
    pub(super) fn go_on(&mut self, now: Instant, queues: &SendQueues) -> bool {
        let done = match self.manner {
            Manner::Reset => queues.are_empty_for(&self.socket),
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

/// Reads what there is, up to a limit; tells whether the peer has closed.
fn has_closed(mut socket: &TcpStream) -> bool {
    let mut discarded = [0; 16 * 1024];
    for _ in 0..READS {
        match socket.read(&mut discarded) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::has_closed;

    /// [TST-04] A server that talks faster than we read would keep everybody else from their turn.
    #[test]
    fn a_talkative_server_is_drained_in_several_turns() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let drained = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let server = std::thread::spawn(move || server.write_all(&vec![0; 16 << 20]));
        // A blocking socket: there is always something to read, until the server has closed.
        let mut turns = 1;
        while !has_closed(&drained) {
            turns += 1;
        }
        assert!(turns > 10, "{turns}");
        server.join().unwrap().unwrap();
    }
}

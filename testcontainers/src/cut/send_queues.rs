//! How many bytes sockets have sent that the kernel of their peer has not acknowledged.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};

/// The bytes by our port and the peer's, which tell a connection: one of the two is a port that nobody else uses at the same
/// time.
type Queues = HashMap<(u16, u16), u64>;

/// The kernel's tables of TCP sockets as they are at the first look. One for each turn of the relay: a table names every
/// socket of the machine, and to read it for each of a thousand connections that end together would take minutes.
#[derive(Debug, Default)]
pub(super) struct SendQueues {
    v4: OnceCell<Queues>,
    v6: OnceCell<Queues>,
}

impl SendQueues {
    /// Tells whether the peer's kernel has acknowledged every byte. Where that cannot be known, it is taken to have.
    pub(super) fn are_empty_for(&self, socket: &TcpStream) -> bool {
        let (Ok(local), Ok(peer)) = (socket.local_addr(), socket.peer_addr()) else { return true };
        let queues = match local {
            SocketAddr::V4(_) => self.v4.get_or_init(|| read("/proc/net/tcp")),
            SocketAddr::V6(_) => self.v6.get_or_init(|| read("/proc/net/tcp6")),
        };
        queues.get(&(local.port(), peer.port())).is_none_or(|bytes| *bytes == 0)
    }
}

fn read(table: &str) -> Queues {
    parse(&fs::read_to_string(table).unwrap_or_default())
}

fn parse(table: &str) -> Queues {
    table.lines().filter_map(parse_line).collect()
}

/// Reads one line (proc(5)): number, our address, the peer's, state, queues.
fn parse_line(line: &str) -> Option<((u16, u16), u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (local, peer) = (port(fields.nth(1)?)?, port(fields.next()?)?);
    let (sent, _) = fields.nth(1)?.split_once(':')?;
    Some(((local, peer), u64::from_str_radix(sent, 16).ok()?))
}

fn port(address: &str) -> Option<u16> {
    u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};

    use super::{SendQueues, parse};

    /// [TST-04] A thousand clients that are reset together must not cost a thousand tables of thousands of lines.
    #[test]
    fn one_look_at_the_table_serves_a_whole_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_reader_that_does_not_read, _) = listener.accept().unwrap();
        let turn = SendQueues::default();
        assert!(turn.are_empty_for(&sender));
        sender.set_nonblocking(true).unwrap();
        let full = loop {
            if let Err(error) = sender.write(&[0; 65536]) {
                break error.kind();
            }
        };
        assert_eq!(full, ErrorKind::WouldBlock);
        assert!(turn.are_empty_for(&sender), "it looked again");
        assert!(!SendQueues::default().are_empty_for(&sender));
    }

    /// [TST-04]
    #[test]
    fn the_send_queue_is_found_by_its_ports() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n   \
             1: 0100007F:1F90 0100007F:A001 01 000001FF:00000002 01:00000000 00000000     0\n   \
             2: 0100007F:A001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0\n";
        let queues = parse(table);
        assert_eq!(queues.get(&(0x1F90, 0xA001)), Some(&0x1FF));
        assert_eq!(queues.get(&(0xA001, 0x1F90)), Some(&0));
        assert_eq!(queues.get(&(0x1F90, 0xA002)), None);
    }
}

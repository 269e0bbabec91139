//! Connects to the upstream without blocking the relay: a stopped server with a full queue lets others wait for long.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::vec;

use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};

/// An attempt to reach one of several addresses, in their order.
#[derive(Debug)]
pub(super) struct Dial {
    addresses: vec::IntoIter<SocketAddr>,
    socket: Option<TcpStream>,
}

/// How far an attempt has come.
#[derive(Debug)]
pub(super) enum Dialled {
    /// Nothing is known yet; the socket becomes writable when it is.
    Pending,
    Connected(TcpStream),
    /// No address took the connection.
    Failed,
}

impl Dial {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Dial {
        Dial { addresses: addresses.into_iter(), socket: None }
    }

    /// Returns the socket that is being connected.
    pub(super) fn socket(&self) -> Option<&TcpStream> {
        self.socket.as_ref()
    }

    /// Looks how far the attempt has come, and goes to the next address when one fails.
    pub(super) fn look(&mut self) -> Dialled {
        loop {
            if let Some(socket) = self.socket.take() {
                match is_connected(&socket) {
                    Ok(true) => return Dialled::Connected(socket),
                    Ok(false) => {
                        self.socket = Some(socket);
                        return Dialled::Pending;
                    }
                    Err(_) => {}
                }
            }
            let Some(address) = self.addresses.next() else { return Dialled::Failed };
            self.socket = start(address).ok();
        }
    }
}

fn start(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Packets of ours leave as they came, not collected into larger ones.
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::EINPROGRESS as i32) => Err(error),
        _ => Ok(socket.into()),
    }
}

fn is_connected(socket: &TcpStream) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

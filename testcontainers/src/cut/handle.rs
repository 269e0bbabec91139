//! The proxy as a test sees it.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::relay::{Order, Relay};
use super::rule::{Action, Direction, Rule, Trigger};
use super::tally::Tally;
use super::url;
use crate::Error;
use crate::process::{Port, on_free_ports};

/// The longest delay: for every one there must be an instant at which it is over.
const LONGEST_DELAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A TCP proxy on a port of its own on 127.0.0.1 that forwards every connection to its upstream, byte by byte, until a
/// test tells it to do worse.
///
/// Faults may be set and ended at any time, from any thread; a method returns when its fault is in force. They add up: a
/// delay and a throttle are a slow and thin line. What the proxy does by itself:
///
/// - An end of file is passed on when everything before it was, and the other direction goes on.
/// - A reset by one side is passed on as a reset, after everything that came before it.
/// - A client whose server cannot be reached is reset. Its `connect` has succeeded by then: the proxy's kernel answers it.
/// - A receiver that does not read makes its sender wait, after about 256 KiB in the proxy; with a delay 16 MiB, so that
///   the delay does not limit the bandwidth.
///
/// A connection is *cut* so: the client sees a reset (`ECONNRESET`), the server the end of file after everything that was
/// forwarded to it. It is not reset, because a reset may take from it what it has not read yet; what it still says is
/// discarded until it closes, for at most a second. Before the reset of a [rule](Cut::when), the client's kernel gets at
/// most three seconds to take what was forwarded to it.
///
/// Dropping it cuts all connections and frees the port; it returns when its one thread has ended.
///
/// ```no_run
/// use std::time::Duration;
/// use levada_testcontainers::{Action, Cut, Direction, Postgres, Trigger};
///
/// let postgres = Postgres::start()?;
/// let cut = Cut::to(postgres.url())?;
/// let rule = cut.when(Direction::ToClient, Trigger::before("COMMIT\0"), Action::Cut);
/// println!("a client of {} commits, and never hears of it", cut.url(postgres.url()));
/// rule.wait(Duration::from_secs(10))?;
/// # Ok::<(), levada_testcontainers::Error>(())
/// ```
#[derive(Debug)]
pub struct Cut {
    address: String,
    orders: Sender<Order>,
    /// Wakes the relay for an order.
    bell: UnixStream,
    /// `Some` until the drop.
    relay: Option<JoinHandle<()>>,
    /// The last to go: the port is free for others when nothing listens on it any more.
    port: Port,
}

impl Cut {
    /// Starts a proxy to `upstream`: a `host:port`, or a URL with one in it. The host is resolved once, here; its addresses
    /// are tried in order for each connection, and need not answer yet.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the host is unknown or the proxy cannot listen, [`Error::NoFreePort`].
    pub fn to(upstream: impl AsRef<str>) -> Result<Cut, Error> {
        let cut = Cut::reserve()?;
        cut.connect_to(upstream)?;
        Ok(cut)
    }

    /// Starts a proxy that has an address but no upstream yet, for a server that must be told the proxy's address before
    /// it starts. Until [`Cut::connect_to`], connections are refused as by [`Cut::refuse`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when it cannot listen, [`Error::NoFreePort`].
    pub fn reserve() -> Result<Cut, Error> {
        on_free_ports(Cut::on_some_port)
    }

    fn on_some_port() -> Result<Cut, Error> {
        let port = Port::reserve()?;
        let address = format!("127.0.0.1:{}", port.number());
        let failed = |source| Error::Io { action: format!("listen on {address}"), source };
        let (orders, received) = mpsc::channel();
        let (bell, heard) = bell().map_err(failed)?;
        // A process that another thread starts at this moment has a copy of the socket by which we looked whether the port is
        // free, until its program begins: then the port is taken for an instant.
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).map_err(|source| {
                match source.kind() {
                    io::ErrorKind::AddrInUse => Error::PortTaken { server: "the proxy" },
                    _ => failed(source),
                }
            })?;
        listener.set_nonblocking(true).map_err(failed)?;
        let relay = Relay::new(listener, received, heard);
        // The name is cut at 15 bytes by the kernel; it fits.
        let thread = thread::Builder::new().name(format!("cut-{}", port.number()));
        let thread = thread.spawn(|| relay.run()).map_err(failed)?;
        Ok(Cut { address, orders, bell, relay: Some(thread), port })
    }

    /// Sets the upstream, as for [`Cut::to`], for the connections that come from now on; open ones keep theirs.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the host is unknown.
    pub fn connect_to(&self, upstream: impl AsRef<str>) -> Result<(), Error> {
        // Only the address gets into an error: the URL may hold a password.
        let upstream = url::address(upstream.as_ref());
        let action = || format!("resolve {upstream}");
        let found = upstream.to_socket_addrs();
        let addresses: Vec<SocketAddr> =
            found.map_err(|source| Error::Io { action: action(), source })?.collect();
        if addresses.is_empty() {
            let source = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            return Err(Error::Io { action: action(), source });
        }
        self.order(|relay| relay.connect_to(addresses));
        Ok(())
    }

    /// Returns where clients connect: `127.0.0.1:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the port of the address.
    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns a URL of the upstream with the proxy's address instead of its host and port. User, password, database and
    /// parameters stay; a parameter that names another host is not looked at.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        url::with_address(url, &self.address)
    }

    /// Adds a latency to each direction, for what comes from now on. It is a latency and no bandwidth: what is sent
    /// together arrives together. Zero ends it; more than a year is a year. A `connect` takes no longer than before: the proxy's kernel answers it.
    pub fn delay(&self, delay: Duration) {
        let delay = delay.min(LONGEST_DELAY);
        self.order(move |relay| relay.faults().delay = delay);
    }

    /// Limits each direction of each connection to this many bytes per second, evenly. Ends with [`Cut::heal`].
    ///
    /// # Panics
    ///
    /// When it is zero: that is a [`Cut::hold`].
    pub fn throttle(&self, bytes_per_second: u64) {
        assert!(bytes_per_second > 0, "a throttle of zero bytes per second is a hold");
        self.order(move |relay| relay.faults().rate = Some(bytes_per_second));
    }

    /// Resets new connections at once; open ones go on. A client's `connect` still succeeds, its first read or write does
    /// not. Ends with [`Cut::heal`].
    pub fn refuse(&self) {
        self.order(|relay| relay.faults().refuse = true);
    }

    /// Lets nothing pass in either direction, ends of file and resets included, as a firewall does that drops packets:
    /// connections stay open, senders may send until the buffers are full. New ones do not reach the server.
    ///
    /// What came is kept for [`Cut::release`]; [`Cut::cut_all`] throws it away with its connections.
    pub fn hold(&self) {
        self.order(|relay| relay.faults().hold = true);
    }

    /// Ends [`Cut::hold`] and the holds by rules: what was held passes, in order, and everything after it.
    pub fn release(&self) {
        self.order(Relay::release);
    }

    /// Cuts every open connection now. What was delayed or held, and what the client's kernel has not taken yet, is lost.
    /// New connections are taken as before.
    pub fn cut_all(&self) {
        self.order(Relay::cut_all);
    }

    /// Ends one direction of every open connection: its receiver sees the end of file after what was forwarded, the other
    /// direction goes on. What was delayed or held in this direction, and what its sender still says, is discarded.
    pub fn half_close(&self, direction: Direction) {
        self.order(move |relay| relay.half_close(direction));
    }

    /// Goes back to plain forwarding: no delay, throttle, refusal or hold, and no rule that has not fired. What was delayed
    /// or held passes at once. What was cut or half-closed stays so.
    pub fn heal(&self) {
        self.order(Relay::heal);
    }

    /// Sets a rule that fires once, at a precise byte, on the first connection that comes to it; see [`Trigger`] for what
    /// is counted, [`Action`] for what happens. Nothing after that byte is forwarded before the action.
    ///
    /// Rules may be set at the same time, in both directions; of several that fire with the same byte all do.
    pub fn when(&self, direction: Direction, trigger: Trigger, action: Action) -> Rule {
        let rule = Rule::new(direction, trigger, action);
        let state = rule.state();
        self.order(move |relay| relay.watch(state));
        rule
    }

    /// Returns how many connections are open now, half-closed ones included, cut ones not.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.count().0
    }

    /// Returns how many connections were taken since the start, without the refused ones.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.count().1.accepted
    }

    /// Returns how many connections were refused since the start: by [`Cut::refuse`], or for want of an upstream.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.count().1.refused
    }

    /// Returns how many bytes were forwarded in a direction since the start, over all connections: taken by the kernel for
    /// their receiver, who may not have read them yet.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.count().1.forwarded(direction)
    }

    fn count(&self) -> (usize, Tally) {
        let (tell, told) = mpsc::sync_channel(1);
        self.order(move |relay| {
            // There is room for one.
            tell.send(relay.count()).ok();
        });
        // The order was carried out, so it was told.
        told.try_recv().unwrap_or_default()
    }

    /// Has the relay do something, and returns when it is in force.
    fn order(&self, act: impl FnOnce(&mut Relay) + Send + 'static) {
        let (done, answer) = mpsc::sync_channel(1);
        let sent = self.orders.send(Order { act: Box::new(act), done });
        // A full bell rings already.
        (&self.bell).write_all(&[1]).ok();
        // The relay ends with the drop only. If it is gone it has panicked, and a test must not go on without its fault.
        assert!(
            sent.is_ok() && answer.recv().is_ok(),
            "the thread of the proxy on {} has ended",
            self.address
        );
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        let Some(relay) = self.relay.take() else { return };
        let (done, _) = mpsc::sync_channel(1);
        self.orders.send(Order { act: Box::new(Relay::stop), done }).ok();
        (&self.bell).write_all(&[1]).ok();
        // Its panic was printed, and a second one in a drop would end the process.
        relay.join().ok();
    }
}

fn bell() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((ours, theirs))
}

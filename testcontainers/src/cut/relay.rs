//! The thread that owns all sockets of one proxy.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::connection::{Connection, Faults};
use super::farewell::{Farewell, reset_now};
use super::rule::{Direction, RuleState};
use super::send_queues::SendQueues;
use super::tally::Tally;

/// How much one read takes at most.
const READ: usize = 64 * 1024;

/// Something to do between two turns, and whom to tell when it is in force.
pub(super) struct Order {
    pub(super) act: Box<dyn FnOnce(&mut Relay) + Send>,
    pub(super) done: SyncSender<()>,
}

/// Everything that moves in a proxy. Its public methods are the orders; each is in force when the turn after it ends.
pub(super) struct Relay {
    /// `None` once the proxy ends.
    listener: Option<TcpListener>,
    orders: Receiver<Order>,
    /// A byte here says that there is an order: `poll` waits for files only.
    bell: UnixStream,
    upstream: Vec<SocketAddr>,
    faults: Faults,
    /// For connections to come.
    rules: Vec<Arc<RuleState>>,
    connections: Vec<Connection>,
    farewells: Vec<Farewell>,
    tally: Tally,
    buffer: Vec<u8>,
}

impl Relay {
    pub(super) fn new(listener: TcpListener, orders: Receiver<Order>, bell: UnixStream) -> Relay {
        Relay {
            listener: Some(listener),
            orders,
            bell,
            upstream: Vec::new(),
            faults: Faults::default(),
            rules: Vec::new(),
            connections: Vec::new(),
            farewells: Vec::new(),
            tally: Tally::default(),
            buffer: vec![0; READ],
        }
    }

    /// Works until the proxy ends and every socket is closed.
    pub(super) fn run(mut self) {
        loop {
            let answers = self.take_orders();
            self.turn();
            for answer in answers {
                // Whoever ordered waits for it, unless its thread ended in between.
                answer.send(()).ok();
            }
            if self.listener.is_none() && self.farewells.is_empty() {
                return;
            }
            self.wait();
        }
    }

    fn take_orders(&mut self) -> Vec<SyncSender<()>> {
        // The bell is emptied before the orders are: one that comes in between rings for the next turn.
        let mut rings = [0; 64];
        while self.bell.read(&mut rings).is_ok_and(|count| count == rings.len()) {}
        let mut answers = Vec::new();
        while let Ok(order) = self.orders.try_recv() {
            // An order counts on what has happened by now, whether poll has told it or not.
            self.connections.iter_mut().for_each(|connection| connection.note_readable(None));
            (order.act)(self);
            answers.push(order.done);
        }
        answers
    }

    /// Moves everything that can be moved now.
    fn turn(&mut self) {
        self.accept();
        loop {
            self.pump();
            let rules = self.rules.len();
            self.rules.retain(|rule| !rule.is_spent());
            // What a rule withheld on one connection passes at once when it has fired on another.
            if self.rules.len() == rules {
                break;
            }
        }
        self.say_farewell();
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        loop {
            match listener.accept() {
                Ok((client, _)) if self.faults.refuse || self.upstream.is_empty() => {
                    reset_now(client);
                    self.tally.refused += 1;
                }
                Ok((client, _)) => {
                    // Neither fails on a socket that is open.
                    client.set_nonblocking(true).ok();
                    client.set_nodelay(true).ok();
                    let mut connection = Connection::new(client, self.upstream.clone(), Instant::now());
                    self.rules.iter().for_each(|rule| connection.watch(rule));
                    self.connections.push(connection);
                    self.tally.accepted += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client gave up while it waited for us: the next one.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // No more files may be open: the client waits in the queue.
                Err(_) => return,
            }
        }
    }

    fn pump(&mut self) {
        for mut connection in std::mem::take(&mut self.connections) {
            match connection.pump(&self.faults, &mut self.tally, &mut self.buffer) {
                None => self.connections.push(connection),
                Some(over) => self.farewells.extend(connection.end(over, Instant::now())),
            }
        }
    }

    fn say_farewell(&mut self) {
        let now = Instant::now();
        let queues = SendQueues::default();
        for mut farewell in std::mem::take(&mut self.farewells) {
            if farewell.go_on(now, &queues) {
                farewell.close();
            } else {
                self.farewells.push(farewell);
            }
        }
    }

    /// Blocks until a socket, an order or the time brings something to do.
    fn wait(&mut self) {
        let now = Instant::now();
        let mut files = vec![PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
        files.extend(self.listener.iter().map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN)));
        // Of each socket that is a source, its place among the files.
        let mut places: Vec<[Option<usize>; 2]> = Vec::with_capacity(self.connections.len());
        for connection in &self.connections {
            let mut of_sources = [None; 2];
            for (place, (socket, reads, writes)) in
                of_sources.iter_mut().zip(connection.waits(&self.faults, now))
            {
                let mut events = PollFlags::empty();
                events.set(PollFlags::POLLIN, reads);
                events.set(PollFlags::POLLOUT, writes);
                // One that nothing is waited for is left out: poll would tell its end again and again.
                if !events.is_empty() {
                    *place = Some(files.len());
                    files.push(PollFd::new(socket.as_fd(), events));
                }
            }
            places.push(of_sources);
        }
        let draining = self.farewells.iter().filter_map(Farewell::reads);
        files.extend(draining.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)));
        // A turn looks at everything but at sources that have nothing. After an error, it looks at these, too.
        let is_told = ppoll(&mut files, self.timeout(now), None).is_ok();
        let has_something = |place: Option<usize>| {
            let events = place.and_then(|place| files[place].revents());
            events.is_some_and(|events| events.intersects(!PollFlags::POLLOUT))
        };
        let readable: Vec<_> =
            places.iter().map(|places| is_told.then(|| places.map(has_something))).collect();
        drop(files);
        for (connection, readable) in self.connections.iter_mut().zip(readable) {
            connection.note_readable(readable);
        }
    }

    /// To the nanosecond: in whole milliseconds, what is under way one behind the other would arrive in bursts.
    fn timeout(&self, now: Instant) -> Option<TimeSpec> {
        let flows = self.connections.iter().filter_map(|connection| connection.due(&self.faults, now));
        let due = flows.chain(self.farewells.iter().map(|farewell| farewell.due(now))).min();
        due.map(|due| TimeSpec::from_duration(due.saturating_duration_since(now)))
    }

    /// Counts, after what has happened by now: a client that has connected is accepted.
    pub(super) fn count(&mut self) -> (usize, Tally) {
        self.turn();
        (self.connections.len(), self.tally)
    }

    /// Sets where new connections go.
    pub(super) fn connect_to(&mut self, upstream: Vec<SocketAddr>) {
        self.upstream = upstream;
    }

    /// Changes the faults in force.
    pub(super) fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Ends every hold.
    pub(super) fn release(&mut self) {
        self.faults.hold = false;
        self.connections.iter_mut().for_each(Connection::release);
    }

    /// Ends one direction of every open connection.
    pub(super) fn half_close(&mut self, direction: Direction) {
        // What came before the order is forwarded or not by the faults in force, like everything else.
        self.pump();
        self.connections.iter_mut().for_each(|connection| connection.half_close(direction));
    }

    /// Ends every open connection.
    pub(super) fn cut_all(&mut self) {
        let now = Instant::now();
        let connections = std::mem::take(&mut self.connections);
        self.farewells.extend(connections.into_iter().filter_map(|connection| connection.cut(now)));
    }

    /// Sets a rule for the open connections and those to come.
    pub(super) fn watch(&mut self, rule: Arc<RuleState>) {
        self.connections.iter_mut().for_each(|connection| connection.watch(&rule));
        self.rules.push(rule);
    }

    /// Ends all faults and rules.
    pub(super) fn heal(&mut self) {
        let now = Instant::now();
        self.faults = Faults::default();
        self.rules.drain(..).for_each(|rule| rule.spend());
        self.connections.iter_mut().for_each(|connection| connection.heal(now));
    }

    /// Closes the listener and ends every connection; the thread ends after them.
    pub(super) fn stop(&mut self) {
        // Clients that wait in its queue are reset by the kernel.
        self.listener = None;
        self.cut_all();
    }
}

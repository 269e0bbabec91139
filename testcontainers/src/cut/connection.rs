//! The two sockets of one connection, and the two flows between them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::dial::{Dial, Dialled};
use super::farewell::{Farewell, reset_now};
use super::flow::{Flow, Step};
use super::line::End;
use super::rule::{Action, Direction, RuleState};
use super::tally::Tally;

/// How much may wait for a slow receiver or a hold: what a network has room for, so that its sender notices.
const WINDOW: usize = 256 * 1024;

/// How much may be under way with a delay: enough that the delay is the latency of a fast line, not its bandwidth.
const LONG_WINDOW: usize = 16 * 1024 * 1024;

/// How many reads of a source there are in one turn. What is discarded fills no window, and a source that is faster than we
/// are would never let another connection or an order have its turn.
const READS: usize = 64;

/// The faults that are in force for all connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) delay: Duration,
    pub(super) rate: Option<u64>,
    pub(super) hold: bool,
    pub(super) refuse: bool,
}

impl Faults {
    fn window(&self) -> usize {
        if self.delay.is_zero() { WINDOW } else { LONG_WINDOW }
    }
}

/// The way to the server.
#[derive(Debug)]
enum Server {
    /// Not begun: a hold keeps the connection from it, as it keeps the bytes.
    Away(Vec<SocketAddr>),
    Dialling(Dial),
    Reached(TcpStream),
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum Over {
    /// Both directions have ended.
    Done,
    /// A rule cut it.
    Cut(Arc<RuleState>),
    /// The source of this direction was reset.
    Reset(Direction),
    /// The server does not take connections.
    Unreachable,
}

/// One connection of a client.
#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    server: Server,
    flows: [Flow; 2],
    /// Whether the source of each direction may have something, as far as is known.
    may_read: [bool; 2],
    /// Held by a rule, whatever the others are.
    hold: bool,
}

impl Connection {
    pub(super) fn new(client: TcpStream, upstream: Vec<SocketAddr>, now: Instant) -> Connection {
        let flows = [Flow::new(now), Flow::new(now)];
        Connection { client, server: Server::Away(upstream), flows, may_read: [true; 2], hold: false }
    }

    /// Moves everything that can be moved now.
    pub(super) fn pump(&mut self, faults: &Faults, tally: &mut Tally, buffer: &mut [u8]) -> Option<Over> {
        if let Some(over) = self.reach_server(faults) {
            return Some(over);
        }
        for direction in Direction::BOTH {
            self.read(direction, faults, buffer);
        }
        for direction in Direction::BOTH {
            if let Some(over) = self.forward(direction, faults, tally) {
                return Some(over);
            }
        }
        self.flows.iter().all(Flow::is_done).then_some(Over::Done)
    }

    fn reach_server(&mut self, faults: &Faults) -> Option<Over> {
        if let Server::Away(addresses) = &mut self.server
            && !faults.hold
        {
            self.server = Server::Dialling(Dial::new(std::mem::take(addresses)));
        }
        if let Server::Dialling(dial) = &mut self.server {
            match dial.look() {
                Dialled::Pending => {}
                Dialled::Connected(socket) => self.server = Server::Reached(socket),
                Dialled::Failed => return Some(Over::Unreachable),
            }
        }
        None
    }

    /// Returns source and target, once there are both.
    fn sockets(&self, direction: Direction) -> Option<(&TcpStream, &TcpStream)> {
        match (&self.server, direction) {
            (Server::Reached(server), Direction::ToServer) => Some((&self.client, server)),
            (Server::Reached(server), Direction::ToClient) => Some((server, &self.client)),
            _ => None,
        }
    }

    /// Takes what the source has sent, as far as there is room.
    fn read(&mut self, direction: Direction, faults: &Faults, buffer: &mut [u8]) {
        if !self.may_read[direction.index()] {
            return;
        }
        for _ in 0..READS {
            if !self.flows[direction.index()].wants(faults.window()) {
                return;
            }
            let Some((mut source, _)) = self.sockets(direction) else { return };
            let read = source.read(buffer);
            // After the read: nothing is under way for less than the delay.
            let due = Instant::now() + faults.delay;
            let flow = &mut self.flows[direction.index()];
            match read {
                Ok(0) => flow.end(End::Finished, due),
                Ok(count) => flow.take(&buffer[..count], due),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => flow.end(End::Reset, due),
            }
        }
    }

    /// Writes what may pass to the target and does what comes after it.
    fn forward(&mut self, direction: Direction, faults: &Faults, tally: &mut Tally) -> Option<Over> {
        while !self.is_held(faults) {
            let now = Instant::now();
            self.flows[direction.index()].advance(now);
            if self.write(direction, faults, tally, now) {
                continue;
            }
            let step = self.flows[direction.index()].step()?;
            if let Some(over) = self.carry_out(step, direction) {
                return Some(over);
            }
        }
        None
    }

    /// Writes once; tells whether something was taken or the target was lost, so that there may be more to do.
    fn write(&mut self, direction: Direction, faults: &Faults, tally: &mut Tally, now: Instant) -> bool {
        let bytes = self.flows[direction.index()].ready(faults.rate, now);
        let Some((_, mut target)) = self.sockets(direction) else { return false };
        if bytes.is_empty() {
            return false;
        }
        match target.write(bytes) {
            Ok(count) => {
                self.flows[direction.index()].sent(count, faults.rate, now);
                tally.forward(direction, count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => {
                self.flows[direction.index()].target_lost().iter().for_each(|rule| rule.tell());
                self.flows[direction.opposite().index()].source_lost(now + faults.delay);
            }
        }
        true
    }

    fn carry_out(&mut self, step: Step, direction: Direction) -> Option<Over> {
        match step {
            Step::Act(rule) => match rule.action {
                Action::Cut => return Some(Over::Cut(rule)),
                Action::HalfClose => {
                    self.flows[direction.index()].finished();
                    self.finish(direction);
                    rule.tell();
                }
                Action::Hold => {
                    self.hold = true;
                    rule.tell();
                }
            },
            Step::Finish => self.finish(direction),
            Step::Reset => return Some(Over::Reset(direction)),
        }
        None
    }

    fn finish(&self, direction: Direction) {
        if let Some((_, target)) = self.sockets(direction) {
            // It fails only when the target is gone already, which its own direction tells.
            target.shutdown(Shutdown::Write).ok();
        }
    }

    fn is_held(&self, faults: &Faults) -> bool {
        self.hold || faults.hold
    }

    pub(super) fn release(&mut self) {
        self.hold = false;
    }

    pub(super) fn heal(&mut self, now: Instant) {
        self.release();
        self.flows.iter_mut().for_each(|flow| flow.heal(now));
    }

    pub(super) fn watch(&mut self, rule: &Arc<RuleState>) {
        self.flows[rule.direction.index()].watch(rule);
    }

    pub(super) fn half_close(&mut self, direction: Direction) {
        self.flows[direction.index()].half_close();
    }

    /// Ends the connection in the way of its end.
    pub(super) fn end(mut self, over: Over, now: Instant) -> Vec<Farewell> {
        let mut rules: VecDeque<_> = self.flows.iter_mut().flat_map(Flow::take_fired).collect();
        match over {
            Over::Done => Vec::new(),
            Over::Unreachable => vec![Farewell::reset(self.client, rules, now)],
            Over::Cut(rule) => {
                rules.push_front(rule);
                let client = Farewell::reset(self.client, rules, now);
                [Some(client), farewell_to_server(self.server, now)].into_iter().flatten().collect()
            }
            Over::Reset(Direction::ToClient) => vec![Farewell::reset(self.client, rules, now)],
            Over::Reset(Direction::ToServer) => match self.server {
                Server::Reached(server) => vec![Farewell::reset(server, rules, now)],
                Server::Away(_) | Server::Dialling(_) => Vec::new(),
            },
        }
    }

    /// Resets the client now, and tells the server the end of file.
    pub(super) fn cut(mut self, now: Instant) -> Option<Farewell> {
        reset_now(self.client);
        self.flows.iter_mut().flat_map(Flow::take_fired).for_each(|rule| rule.tell());
        farewell_to_server(self.server, now)
    }

    /// Returns when to pump again without an event at a socket.
    pub(super) fn due(&self, faults: &Faults, now: Instant) -> Option<Instant> {
        if self.is_held(faults) {
            return None;
        }
        self.flows.iter().filter_map(|flow| flow.due(faults.rate, now)).min()
    }

    /// Notes which sources have something: in the order of [`Connection::waits`], or nothing if that is not known.
    pub(super) fn note_readable(&mut self, readable: Option<[bool; 2]>) {
        self.may_read = readable.unwrap_or([true; 2]);
    }

    /// Returns the sockets with what is waited for at each: bytes to read, room to write. In the order of the directions that they are the
    /// source of.
    pub(super) fn waits(&self, faults: &Faults, now: Instant) -> Vec<(&TcpStream, bool, bool)> {
        match &self.server {
            Server::Away(_) => Vec::new(),
            Server::Dialling(dial) => dial.socket().map(|socket| (socket, false, true)).into_iter().collect(),
            Server::Reached(server) => {
                let [requests, answers] = &self.flows;
                let (window, held) = (faults.window(), self.is_held(faults));
                let writes = |flow: &Flow| !held && !flow.ready(faults.rate, now).is_empty();
                vec![
                    (&self.client, requests.wants(window), writes(answers)),
                    (server, answers.wants(window), writes(requests)),
                ]
            }
        }
    }
}

fn farewell_to_server(server: Server, now: Instant) -> Option<Farewell> {
    match server {
        Server::Reached(socket) => Some(Farewell::drain(socket, now)),
        Server::Away(_) | Server::Dialling(_) => None,
    }
}

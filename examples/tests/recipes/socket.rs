//! The test plays the peer of the socket sink.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::program::{Program, run};

/// Nobody waits longer for the recipe: it has failed then.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not the loopback address that everybody's connections take their ports at: while the peer is away, its port stays free.
fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 77], 0))).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    // An `accept` heeds the same option of the socket as a `read`, which a listener has no method for.
    let socket = TcpStream::from(OwnedFd::from(listener.try_clone().expect("a second handle")));
    socket.set_read_timeout(Some(PATIENCE)).expect("an option");
    (listener, address)
}

fn start(address: &str, store: &tempfile::TempDir) -> Program {
    let store = store.path().to_str().expect("text");
    Program::start(env!("CARGO_BIN_EXE_socket_sink"), &[address, store])
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (connection, _) = listener.accept().expect("a connection in time");
    connection.set_read_timeout(Some(PATIENCE)).expect("an option");
    connection
}

/// Takes at most so many lines, confirms when asked to, and hangs up; returns the lines.
fn take(mut connection: TcpStream, most: usize) -> Vec<String> {
    let read = BufReader::new(connection.try_clone().expect("a second handle"));
    let mut lines = Vec::new();
    for line in read.lines().take(most) {
        match line.expect("a line in time").as_str() {
            "confirm" => connection.write_all(b"ok\n").expect("an answer"),
            line => lines.push(line.to_owned()),
        }
    }
    lines
}

fn numbers(lines: &[String]) -> Vec<u64> {
    lines.iter().map(|line| line.split(' ').next().expect("a number").parse().expect("a number")).collect()
}

fn all() -> Vec<u64> {
    (0..10).collect()
}

/// [TPL-04] the peer goes away and comes back.
#[test]
fn lines_that_a_lost_connection_may_have_lost_are_sent_again() {
    let store = tempfile::tempdir().expect("a folder");
    let (listener, address) = listen();
    let program = start(&address, &store);
    assert_eq!(numbers(&take(accept(&listener), 2)), [0, 1]);
    let lines = take(accept(&listener), usize::MAX);
    assert_eq!(numbers(&lines), all());
    assert!(program.end().well().contains("the connection is lost"));
    // Confirmed, and covered by a checkpoint: nothing comes again.
    start(&address, &store).end().well();
    listener.set_nonblocking(true).expect("a listener");
    assert!(listener.accept().is_err(), "a connection with nothing to say");
}

/// [TPL-04] each line has the three times.
#[test]
fn lines_carry_record_time_watermark_and_processing_time() {
    let store = tempfile::tempdir().expect("a folder");
    let (listener, address) = listen();
    let program = start(&address, &store);
    let lines = take(accept(&listener), usize::MAX);
    program.end().well();
    let (times, now): (Vec<&str>, Vec<&str>) =
        lines.iter().map(|line| line.split_once(" now=").expect("a time")).unzip();
    assert_eq!(times[0], "0 time=0 ms watermark=none");
    assert_eq!(times[9], "9 time=9000 ms watermark=8000 ms");
    for now in now {
        let milliseconds: i64 = now.trim_end_matches(" ms").parse().expect("a time");
        assert!(milliseconds > 1_700_000_000_000, "{now}");
    }
}

/// [TPL-04] the peer stays away: an error that says so, and the next start sends what was not confirmed.
#[test]
fn peer_that_stays_away_ends_the_job_and_the_next_start_leaves_nothing_out() {
    let store = tempfile::tempdir().expect("a folder");
    let (listener, address) = listen();
    let program = start(&address, &store);
    let connection = accept(&listener);
    drop(listener);
    assert_eq!(numbers(&take(connection, 2)), [0, 1]);
    let ended = program.end();
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.err.contains(&format!("{address} is gone after 5 more attempts")), "{}", ended.err);
    assert_eq!(ended.out.matches("trying again").count(), 5, "{}", ended.out);
    let (listener, address) = listen();
    let program = start(&address, &store);
    assert_eq!(numbers(&take(accept(&listener), usize::MAX)), all());
    program.end().well();
}

/// [TPL-04] a peer that ends before it confirms has not confirmed.
#[test]
fn end_of_the_connection_in_place_of_an_answer_is_no_confirmation() {
    let store = tempfile::tempdir().expect("a folder");
    let (listener, address) = listen();
    let program = start(&address, &store);
    let connection = accept(&listener);
    let until_asked = BufReader::new(&connection).lines().map(|line| line.expect("a line"));
    assert_eq!(until_asked.take_while(|line| line != "confirm").count(), 10);
    drop(connection);
    assert_eq!(numbers(&take(accept(&listener), usize::MAX)), all());
    program.end().well();
}

/// [TPL-04] without arguments the recipe plays the peer itself.
#[test]
fn recipe_alone_shows_a_reconnection() {
    let out = run(env!("CARGO_BIN_EXE_socket_sink"), &[]);
    assert!(out.contains("peer: hangs up\nsink: the connection is lost, trying again\npeer: 0 "), "{out}");
    assert!(out.ends_with("peer: 9 time=9000 ms watermark=8000 ms\npeer: confirm\n"), "{out}");
}

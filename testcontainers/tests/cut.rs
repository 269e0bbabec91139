//! The proxy between plain sockets: each rule to the byte.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use levada_testcontainers::{Action, Cut, Direction, Error, Trigger, wait_until};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use socket2::{Domain, SockRef, Socket, Type};

const PATIENCE: Duration = Duration::from_secs(20);

/// Long enough for anything that could pass to have passed.
const QUIET: Duration = Duration::from_millis(150);

const RESET: Option<ErrorKind> = Some(ErrorKind::ConnectionReset);
const END_OF_FILE: Option<ErrorKind> = None;

/// A proxy and the server behind it.
struct Line {
    cut: Cut,
    server: TcpListener,
}

impl Line {
    fn new() -> Line {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        Line { cut: Cut::to(server.local_addr().unwrap().to_string()).unwrap(), server }
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(self.cut.address()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_nodelay(true).unwrap();
        client
    }

    /// A connection: the client's end and the server's.
    fn ends(&self) -> (TcpStream, TcpStream) {
        let client = self.client();
        let (server, _) = self.server.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        server.set_nodelay(true).unwrap();
        (client, server)
    }

    /// A connection: the end that sends in a direction and the one that receives.
    fn towards(&self, direction: Direction) -> (TcpStream, TcpStream) {
        let (client, server) = self.ends();
        match direction {
            Direction::ToServer => (client, server),
            Direction::ToClient => (server, client),
        }
    }

    fn wait_for_bytes(&self, direction: Direction, count: u64) {
        let what = format!("{count} bytes {direction:?}");
        wait_until(PATIENCE, &what, || self.cut.bytes(direction) == count).unwrap();
    }
}

/// Reads to the end, whatever it is.
fn read_to_end(mut stream: &TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (bytes, END_OF_FILE),
            Ok(count) => bytes.extend(&buffer[..count]),
            Err(error) => return (bytes, Some(error.kind())),
        }
    }
}

fn read_exactly(mut stream: &TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn write(mut stream: &TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
}

/// Writes in random pieces. A cut may come in between.
fn write_in_pieces(mut stream: &TcpStream, bytes: &[u8], random: &mut StdRng) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let longest = if random.random_bool(0.5) { 10 } else { 50_000 };
        let (piece, after) = rest.split_at(random.random_range(1..=longest.min(rest.len())));
        if stream.write_all(piece).is_err() {
            return;
        }
        rest = after;
    }
}

fn assert_silent(stream: &TcpStream) {
    stream.set_read_timeout(Some(QUIET)).unwrap();
    let error = stream.peek(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

fn random() -> StdRng {
    let seed = rand::random();
    println!("seed {seed}");
    StdRng::seed_from_u64(seed)
}

fn random_bytes(random: &mut StdRng, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    random.fill_bytes(&mut bytes);
    bytes
}

/// [TST-04]
#[test]
fn bytes_pass_unchanged_in_both_directions_at_once() {
    let line = Line::new();
    let mut random = random();
    let (request, answer) = (random_bytes(&mut random, 3_000_000), random_bytes(&mut random, 2_000_000));
    let (client, server) = line.ends();
    thread::scope(|scope| {
        for (end, bytes) in [(&client, &request), (&server, &answer)] {
            let mut random = StdRng::seed_from_u64(random.next_u64());
            scope.spawn(move || {
                write_in_pieces(end, bytes, &mut random);
                end.shutdown(Shutdown::Write).unwrap();
            });
        }
        let got = scope.spawn(|| read_to_end(&server));
        assert!(read_to_end(&client) == (answer.clone(), END_OF_FILE));
        assert!(got.join().unwrap() == (request.clone(), END_OF_FILE));
    });
    assert_eq!(line.cut.bytes(Direction::ToServer), 3_000_000);
    assert_eq!(line.cut.bytes(Direction::ToClient), 2_000_000);
    wait_until(PATIENCE, "the end of the connection", || line.cut.connections() == 0).unwrap();
    assert_eq!((line.cut.accepted(), line.cut.refused()), (1, 0));
}

/// [TST-04] Many clients speak in one direction until its end and hear the answer after it.
#[test]
fn an_end_of_file_passes_and_the_other_direction_goes_on() {
    let line = Line::new();
    let (client, server) = line.ends();
    write(&client, b"question");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&server), (b"question".to_vec(), END_OF_FILE));
    write(&server, b"answer");
    assert_eq!(read_exactly(&client, 6), b"answer");
    assert_eq!(line.cut.connections(), 1);
    drop(server);
    assert_eq!(read_to_end(&client), (Vec::new(), END_OF_FILE));
}

/// [TST-04]
#[test]
fn a_close_arrives_as_a_close_and_a_reset_as_a_reset() {
    let line = Line::new();
    for direction in [Direction::ToServer, Direction::ToClient] {
        let (sender, receiver) = line.towards(direction);
        write(&sender, b"last words");
        drop(sender);
        assert_eq!(read_to_end(&receiver), (b"last words".to_vec(), END_OF_FILE), "{direction:?}");
        drop(receiver);
        let (sender, receiver) = line.towards(direction);
        write(&sender, b"last words");
        assert_eq!(read_exactly(&receiver, 10), b"last words");
        reset(sender);
        assert_eq!(read_to_end(&receiver), (Vec::new(), RESET), "{direction:?}");
    }
    wait_until(PATIENCE, "the end of all connections", || line.cut.connections() == 0).unwrap();
}

/// [TST-04]
#[test]
fn a_cut_after_a_number_of_bytes_is_exact_however_they_are_sent() {
    let line = Line::new();
    let mut random = random();
    for round in 0..60 {
        let direction = if round % 2 == 0 { Direction::ToServer } else { Direction::ToClient };
        let length = if round < 40 { random.random_range(1..200) } else { random.random_range(1..400_000) };
        let bytes = random_bytes(&mut random, length);
        let count = random.random_range(0..=length);
        let rule = line.cut.when(direction, Trigger::after_bytes(count as u64), Action::Cut);
        let (sender, receiver) = line.towards(direction);
        let (got, end) = thread::scope(|scope| {
            scope.spawn(|| write_in_pieces(&sender, &bytes, &mut random));
            read_to_end(&receiver)
        });
        assert_eq!(got.len(), count, "of {length} {direction:?}");
        assert!(got == bytes[..count]);
        assert_eq!(end, if direction == Direction::ToClient { RESET } else { END_OF_FILE });
        // The client closes: a server's end of file is no proof that the rule has acted on the client too.
        rule.wait(PATIENCE).unwrap();
        if direction == Direction::ToServer {
            assert_eq!(read_to_end(&sender), (Vec::new(), RESET));
        }
        drop((sender, receiver));
    }
    assert_eq!(line.cut.connections(), 0);
}

/// [TST-04] The stream holds false starts of the pattern, one of them overlapping it.
#[test]
fn a_pattern_is_found_wherever_the_reads_split_it() {
    let (stream, pattern) = (b"aab-aaabaaab-tail", b"aabaaab");
    let start = 5;
    assert_eq!(&stream[start..start + pattern.len()], pattern);
    let end = start + pattern.len();
    for direction in [Direction::ToServer, Direction::ToClient] {
        for split in 1..stream.len() {
            let line = Line::new();
            for (trigger, place) in [(Trigger::after(pattern), end), (Trigger::before(pattern), start)] {
                let before = line.cut.bytes(direction);
                let doubtful = match &trigger {
                    Trigger::Before(_) => {
                        (0..=pattern.len()).rev().find(|k| stream[..split].ends_with(&pattern[..*k])).unwrap()
                    }
                    _ => 0,
                };
                let rule = line.cut.when(direction, trigger.clone(), Action::Cut);
                let (mut sender, receiver) = line.towards(direction);
                write(&sender, &stream[..split]);
                // The first part is through as far as it may: the second is another read.
                let passed = if split >= end { place } else { split - doubtful };
                line.wait_for_bytes(direction, before + passed as u64);
                assert_eq!(
                    read_exactly(&receiver, passed),
                    &stream[..passed],
                    "{trigger:?} split at {split}"
                );
                // It fails where the cut has come already.
                sender.write_all(&stream[split..]).ok();
                rule.wait(PATIENCE).unwrap();
                let (got, _) = read_to_end(&receiver);
                assert_eq!(got, &stream[passed..place], "{trigger:?} split at {split}");
            }
        }
    }
}

/// [TST-04]
#[test]
fn what_only_began_like_the_pattern_passes_at_once_and_at_the_end() {
    let line = Line::new();
    let rule = line.cut.when(Direction::ToClient, Trigger::before("COMMIT\0"), Action::Cut);
    let (client, server) = line.ends();
    write(&server, b"COMM");
    assert_silent(&client);
    write(&server, b"ON");
    assert_eq!(read_exactly(&client, 6), b"COMMON");
    write(&server, b"COMMIT");
    assert_silent(&client);
    drop(server);
    assert_eq!(read_to_end(&client), (b"COMMIT".to_vec(), END_OF_FILE));
    assert!(!rule.has_fired());
}

/// [TST-04]
#[test]
fn a_rule_fires_once_and_counts_from_when_it_was_set() {
    let line = Line::new();
    let (first_client, first_server) = line.ends();
    write(&first_client, b"0123456789");
    assert_eq!(read_exactly(&first_server, 10), b"0123456789");
    let rule = line.cut.when(Direction::ToServer, Trigger::after_bytes(3), Action::Cut);
    write(&first_client, b"abcdef");
    assert_eq!(read_to_end(&first_server), (b"abc".to_vec(), END_OF_FILE));
    rule.wait(PATIENCE).unwrap();
    let (second_client, second_server) = line.ends();
    write(&second_client, b"abcdef");
    assert_eq!(read_exactly(&second_server, 6), b"abcdef");
}

/// [TST-04] The client has little room and does not read yet, so most of what was forwarded is still in the proxy's kernel
/// when the rule fires: a reset at once would take it away.
#[test]
fn a_cut_client_has_everything_that_was_forwarded_to_it() {
    let line = Line::new();
    line.cut.when(Direction::ToClient, Trigger::after_bytes(500_000), Action::Cut);
    let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    client.set_recv_buffer_size(32 * 1024).unwrap();
    client.connect(&line.cut.address().parse::<SocketAddr>().unwrap().into()).unwrap();
    let client = TcpStream::from(client);
    let (server, _) = line.server.accept().unwrap();
    let bytes = random_bytes(&mut random(), 600_000);
    write(&server, &bytes);
    line.wait_for_bytes(Direction::ToClient, 500_000);
    let (got, end) = read_to_end(&client);
    assert_eq!((got.len(), end), (500_000, RESET));
    assert!(got == bytes[..500_000]);
}

/// [TST-04] What has passed the rule and waits for its turn is still forwarded.
#[test]
fn a_slow_line_is_cut_at_the_same_byte() {
    let line = Line::new();
    line.cut.delay(Duration::from_millis(20));
    line.cut.throttle(50_000);
    for direction in [Direction::ToServer, Direction::ToClient] {
        let rule = line.cut.when(direction, Trigger::after("end"), Action::Cut);
        let (sender, receiver) = line.towards(direction);
        let bytes = [vec![b'.'; 10_000], b"end".to_vec(), vec![b'.'; 10_000]].concat();
        write(&sender, &bytes);
        assert_eq!(read_to_end(&receiver).0.len(), 10_003, "{direction:?}");
        rule.wait(PATIENCE).unwrap();
    }
}

/// [TST-04] A reset might take from it what it has not read yet.
#[test]
fn a_cut_server_has_everything_that_was_forwarded_to_it() {
    let line = Line::new();
    let rule = line.cut.when(Direction::ToServer, Trigger::after_bytes(50_000), Action::Cut);
    let (client, server) = line.ends();
    write(&client, &[7; 60_000]);
    rule.wait(PATIENCE).unwrap();
    // It goes on to speak before it reads, to nobody.
    write(&server, &[8; 100_000]);
    assert_eq!(read_to_end(&server), (vec![7; 50_000], END_OF_FILE));
    assert_eq!(read_to_end(&client), (Vec::new(), RESET));
}

/// [TST-04] A hundred questions at once take the time of one: a delay for each, one after another, would be 10 s.
#[test]
fn a_delay_is_a_latency_and_no_bandwidth() {
    let line = Line::new();
    line.cut.delay(Duration::from_millis(50));
    let (client, server) = line.ends();
    thread::scope(|scope| {
        scope.spawn(|| std::io::copy(&mut &server, &mut &server).unwrap());
        let started = Instant::now();
        for number in 0..100_u8 {
            write(&client, &[number]);
        }
        assert_eq!(read_exactly(&client, 1), [0]);
        let first = started.elapsed();
        assert!(first >= Duration::from_millis(100), "{first:?}");
        assert_eq!(read_exactly(&client, 99), (1..100).collect::<Vec<u8>>());
        let all = started.elapsed();
        assert!(all < Duration::from_secs(2), "{all:?}");
        drop(client);
    });
}

/// [TST-04]
#[test]
fn a_delay_does_not_limit_the_bandwidth() {
    let line = Line::new();
    line.cut.delay(Duration::from_millis(200));
    let (client, server) = line.ends();
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            write(&client, &vec![1; 8_000_000]);
            client.shutdown(Shutdown::Write).unwrap();
        });
        assert_eq!(read_to_end(&server).0.len(), 8_000_000);
    });
    // With the window of a line without delay, 256 KiB each 200 ms, it would be 6 s.
    let taken = started.elapsed();
    assert!(taken >= Duration::from_millis(200) && taken < Duration::from_secs(4), "{taken:?}");
}

/// [TST-04]
#[test]
fn a_delay_longer_than_the_client_s_patience_is_late_and_not_lost() {
    let line = Line::new();
    let (client, server) = line.ends();
    line.cut.delay(10 * QUIET);
    write(&server, b"late");
    assert_silent(&client);
    assert_eq!(read_exactly(&client, 4), b"late");
}

/// [TST-04]
#[test]
fn a_delay_without_end_is_ended_by_healing() {
    let line = Line::new();
    let (client, server) = line.ends();
    line.cut.delay(Duration::MAX);
    write(&client, b"late");
    assert_silent(&server);
    line.cut.heal();
    assert_eq!(read_exactly(&server, 4), b"late");
}

/// [TST-04]
#[test]
fn a_throttle_spreads_bytes_over_time() {
    let line = Line::new();
    line.cut.throttle(200_000);
    let (client, server) = line.ends();
    let started = Instant::now();
    write(&client, &[1; 100_000]);
    read_exactly(&server, 50_000);
    let half = started.elapsed();
    read_exactly(&server, 50_000);
    let all = started.elapsed();
    assert!(half >= Duration::from_millis(200), "{half:?}");
    assert!(all >= Duration::from_millis(450) && all < Duration::from_secs(5), "{all:?}");
    line.cut.heal();
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| write(&client, &[1; 1_000_000]));
        read_exactly(&server, 1_000_000);
    });
    // The throttle would take five seconds.
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

/// [TST-04]
#[test]
fn a_half_close_ends_one_direction_and_the_other_goes_on() {
    let line = Line::new();
    for direction in [Direction::ToServer, Direction::ToClient] {
        let (sender, receiver) = line.towards(direction);
        write(&sender, b"before");
        assert_eq!(read_exactly(&receiver, 6), b"before");
        line.cut.half_close(direction);
        assert_eq!(read_to_end(&receiver), (Vec::new(), END_OF_FILE), "{direction:?}");
        // Nobody hears it, and nobody is reset for saying it.
        write(&sender, &[0; 100_000]);
        write(&receiver, b"answer");
        assert_eq!(read_exactly(&sender, 6), b"answer", "{direction:?}");
        assert_eq!(line.cut.connections(), 1);
        drop(receiver);
        assert_eq!(read_to_end(&sender), (Vec::new(), END_OF_FILE), "{direction:?}");
        drop(sender);
        wait_until(PATIENCE, "the end of the connection", || line.cut.connections() == 0).unwrap();
    }
}

/// [TST-04]
#[test]
fn a_sender_without_end_that_nobody_hears_keeps_nobody_from_their_turn() {
    let line = Line::new();
    let (endless, _deaf) = line.towards(Direction::ToClient);
    let sender = thread::spawn(move || while (&endless).write_all(&[0; 1 << 20]).is_ok() {});
    line.cut.half_close(Direction::ToClient);
    let (client, server) = line.ends();
    write(&client, b"others");
    assert_eq!(read_exactly(&server, 6), b"others");
    line.cut.cut_all();
    sender.join().unwrap();
}

/// [TST-04]
#[test]
fn a_rule_half_closes_at_its_byte() {
    let line = Line::new();
    let rule = line.cut.when(Direction::ToClient, Trigger::after("stop"), Action::HalfClose);
    let (client, server) = line.ends();
    write(&server, b"go on, stop, go on");
    assert_eq!(read_to_end(&client), (b"go on, stop".to_vec(), END_OF_FILE));
    rule.wait(PATIENCE).unwrap();
    write(&client, b"why?");
    assert_eq!(read_exactly(&server, 4), b"why?");
}

/// [TST-04] The end of file and the reset are held too: the network is away.
#[test]
fn nothing_passes_a_hold_and_everything_its_release() {
    let line = Line::new();
    let (client, server) = line.ends();
    let (closing, left) = line.ends();
    line.cut.hold();
    write(&client, b"question");
    write(&server, b"answer");
    write(&closing, b"last words");
    drop(closing);
    let late = line.client();
    write(&late, b"late");
    for end in [&client, &server, &left, &late] {
        assert_silent(end);
    }
    line.server.set_nonblocking(true).unwrap();
    assert_eq!(line.server.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "it reached the server");
    line.server.set_nonblocking(false).unwrap();
    assert_eq!(line.cut.connections(), 3);
    line.cut.release();
    assert_eq!(read_exactly(&server, 8), b"question");
    assert_eq!(read_exactly(&client, 6), b"answer");
    assert_eq!(read_to_end(&left), (b"last words".to_vec(), END_OF_FILE));
    let (late_server, _) = line.server.accept().unwrap();
    assert_eq!(read_exactly(&late_server, 4), b"late");
}

/// [TST-04] What was withheld before its pattern passes with the release.
#[test]
fn a_rule_holds_its_connection_at_its_byte_and_no_other() {
    let line = Line::new();
    let (client, server) = line.ends();
    let (other_client, other_server) = line.ends();
    let rule = line.cut.when(Direction::ToClient, Trigger::before("done"), Action::Hold);
    write(&server, b"nearly done and more");
    rule.wait(PATIENCE).unwrap();
    assert_eq!(read_exactly(&client, 7), b"nearly ");
    write(&client, b"well?");
    assert_silent(&client);
    assert_silent(&server);
    write(&other_server, b"done");
    assert_eq!(read_exactly(&other_client, 4), b"done");
    line.cut.release();
    assert_eq!(read_exactly(&client, 13), b"done and more");
    assert_eq!(read_exactly(&server, 5), b"well?");
}

/// [TST-04]
#[test]
fn a_refusal_resets_new_connections_and_leaves_the_old() {
    let line = Line::new();
    let (client, server) = line.ends();
    line.cut.refuse();
    for _ in 0..3 {
        assert_eq!(read_to_end(&line.client()), (Vec::new(), RESET));
    }
    assert_eq!((line.cut.accepted(), line.cut.refused(), line.cut.connections()), (1, 3, 1));
    write(&client, b"still here");
    assert_eq!(read_exactly(&server, 10), b"still here");
    line.cut.heal();
    let (client, server) = line.ends();
    write(&client, b"again");
    assert_eq!(read_exactly(&server, 5), b"again");
}

/// [TST-04]
#[test]
fn a_cut_of_all_resets_the_clients_and_throws_away_what_was_held() {
    let line = Line::new();
    let ends: Vec<_> = (0..5).map(|_| line.ends()).collect();
    for (client, server) in &ends {
        write(client, b"heard");
        assert_eq!(read_exactly(server, 5), b"heard");
    }
    line.cut.hold();
    for (client, server) in &ends {
        write(client, b"not heard");
        write(server, b"not heard");
    }
    line.cut.cut_all();
    assert_eq!(line.cut.connections(), 0);
    line.cut.heal();
    for (client, server) in &ends {
        assert_eq!(read_to_end(client), (Vec::new(), RESET));
        assert_eq!(read_to_end(server), (Vec::new(), END_OF_FILE));
    }
    let (client, server) = line.ends();
    write(&client, b"again");
    assert_eq!(read_exactly(&server, 5), b"again");
}

/// [TST-04]
#[test]
fn a_healed_line_forwards_at_once_and_has_no_rules() {
    let line = Line::new();
    let (client, server) = line.ends();
    let rule = line.cut.when(Direction::ToServer, Trigger::before("ab"), Action::Cut);
    write(&client, b"a");
    assert_silent(&server);
    line.cut.delay(Duration::from_secs(600));
    write(&client, b"a");
    write(&server, b"answer");
    assert_silent(&client);
    line.cut.heal();
    assert_eq!(read_exactly(&client, 6), b"answer");
    write(&client, b"b");
    assert_eq!(read_exactly(&server, 3), b"aab");
    assert!(matches!(rule.wait(Duration::ZERO), Err(Error::TimedOut { .. })));
}

/// [TST-04] As for a broker, which is told the proxy's address before it runs.
#[test]
fn a_reserved_line_refuses_until_it_has_an_upstream() {
    let cut = Cut::reserve().unwrap();
    let early = TcpStream::connect(cut.address()).unwrap();
    assert_eq!(read_to_end(&early), (Vec::new(), RESET));
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    cut.connect_to(server.local_addr().unwrap().to_string()).unwrap();
    let line = Line { cut, server };
    let (client, server) = line.ends();
    write(&client, b"hello");
    assert_eq!(read_exactly(&server, 5), b"hello");
    assert_eq!((line.cut.accepted(), line.cut.refused()), (1, 1));
}

/// [TST-04]
#[test]
fn a_client_whose_server_is_down_is_reset() {
    let Line { cut, server } = Line::new();
    drop(server);
    let client = TcpStream::connect(cut.address()).unwrap();
    assert_eq!(read_to_end(&client), (Vec::new(), RESET));
}

/// [TST-04] `localhost` may have an IPv6 address where nobody listens: the next one is tried.
#[test]
fn a_name_is_resolved_and_its_addresses_tried() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("localhost:{}", server.local_addr().unwrap().port());
    let line = Line { cut: Cut::to(upstream).unwrap(), server };
    let (client, server) = line.ends();
    write(&client, b"hello");
    assert_eq!(read_exactly(&server, 5), b"hello");
}

/// [TST-04]
#[test]
fn an_unknown_host_is_an_error_without_the_password() {
    let error = Cut::to("postgres://user:secret@no-such-host.invalid:1/database").unwrap_err();
    assert!(matches!(error, Error::Io { .. }));
    assert!(error.to_string().contains("no-such-host.invalid:1"), "{error}");
    assert!(!error.chain().contains("secret"), "{error}");
}

/// The folders in /proc of the threads of a proxy.
fn threads_of(cut_address: &str) -> Vec<PathBuf> {
    let name = cut_address.replace("127.0.0.1:", "cut-");
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_ours =
        |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name);
    tasks.filter(is_ours).collect()
}

/// [TST-04] Connections in every state in which there is nothing to do: `poll` must not tell their ends again and again.
#[test]
fn a_line_on_which_nothing_happens_uses_no_processor_time() {
    let line = Line::new();
    let (half_client, _half_server) = line.ends();
    line.cut.half_close(Direction::ToClient);
    half_client.shutdown(Shutdown::Write).unwrap();
    let (full_client, _full_server) = line.ends();
    full_client.set_nonblocking(true).unwrap();
    wait_until(PATIENCE, "a full line", || (&full_client).write(&[0; 65_536]).is_err()).unwrap();
    let (held_client, _held_server) = line.ends();
    let (reset_client, _reset_server) = line.ends();
    line.cut.when(Direction::ToServer, Trigger::after_bytes(1), Action::Hold);
    write(&held_client, b"xx");
    line.cut.hold();
    reset(reset_client);
    let used = || {
        let schedule = fs::read_to_string(threads_of(line.cut.address())[0].join("schedstat")).unwrap();
        schedule.split(' ').next().unwrap().parse().map(Duration::from_nanos).unwrap()
    };
    assert_silent(&held_client);
    let before: Duration = used();
    assert_silent(&held_client);
    line.cut.release();
    assert_silent(&held_client);
    let busy = used() - before;
    assert!(busy < QUIET / 2, "{busy:?} of {:?}", 2 * QUIET);
}

/// [TST-05] What a proxy might leave.
#[test]
fn a_dropped_line_leaves_no_thread_no_connection_and_no_port() {
    let line = Line::new();
    let (client, server) = line.ends();
    let address = line.cut.address().to_owned();
    assert_eq!(threads_of(&address).len(), 1);
    write(&client, b"heard");
    assert_eq!(read_exactly(&server, 5), b"heard");
    let dropping = Instant::now();
    // The server does not close: it is waited for, but not long.
    drop(line.cut);
    assert!(dropping.elapsed() < Duration::from_secs(5), "{:?}", dropping.elapsed());
    assert_eq!(read_to_end(&client), (Vec::new(), RESET));
    assert_eq!(read_to_end(&server), (Vec::new(), END_OF_FILE));
    // The kernel takes a joined thread off the list a moment later.
    wait_until(PATIENCE, "the end of the thread", || threads_of(&address).is_empty()).unwrap();
    assert_eq!(TcpStream::connect(&address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    TcpListener::bind(&address).unwrap();
}

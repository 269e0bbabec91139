//! Containers as a handle will see them, from both images, and what is left of them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use tokio_postgres::NoTls;

use super::{Container, File, Image, Ready, Spec};
use crate::process::{DataFolder, Identity, Port};
use crate::{Error, unique_name, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A container with what must outlive it.
struct Server {
    container: Container,
    /// The port that clients connect to.
    port: u16,
    folder: DataFolder,
    _ports: Vec<Port>,
}

impl Server {
    fn logs(&self) -> String {
        std::fs::read_to_string(self.folder.log()).unwrap()
    }
}

fn kafka() -> Server {
    let folder = DataFolder::create("kafka").unwrap();
    let (broker, controller) = (Port::reserve().unwrap(), Port::reserve().unwrap());
    let properties = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n\
         controller.quorum.voters=1@127.0.0.1:{1}\nlisteners=PLAINTEXT://127.0.0.1:{0},CONTROLLER://127.0.0.1:{1}\n\
         advertised.listeners=PLAINTEXT://127.0.0.1:{0}\nlog.dirs=/var/lib/kafka/data\n\
         offsets.topic.replication.factor=1\nbroker.session.timeout.ms=2000\nbroker.heartbeat.interval.ms=500\n",
        broker.number(),
        controller.number()
    );
    let path = "/mnt/shared/config/server.properties".to_owned();
    let spec = Spec {
        env: vec![("CLUSTER_ID".to_owned(), "levadaContainerTest000".to_owned())],
        files: vec![File { path, contents: properties.into_bytes(), mode: 0o644 }],
        ready: Ready::Logs("Kafka Server started"),
        ..spec("Kafka", Image::kafka("4.3.0").unwrap(), &folder)
    };
    let container = Container::start(spec).unwrap();
    Server { container, port: broker.number(), folder, _ports: vec![broker, controller] }
}

fn postgres() -> Server {
    let folder = DataFolder::create("postgres").unwrap();
    let port = Port::reserve().unwrap();
    let number = port.number();
    let spec = Spec {
        env: vec![
            ("POSTGRES_USER".to_owned(), "levada".to_owned()),
            ("POSTGRES_PASSWORD".to_owned(), "levada-secret".to_owned()),
            ("POSTGRES_INITDB_ARGS".to_owned(), "--no-sync".to_owned()),
        ],
        command: ["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={number}")]
            .map(str::to_owned)
            .into(),
        tmpfs: vec!["/var/run/postgresql".to_owned()],
        ready: Ready::Answers(Arc::new(move || query(number, "SELECT 1").is_ok())),
        ..spec("Postgres", Image::postgres(None).unwrap(), &folder)
    };
    let container = Container::start(spec).unwrap();
    Server { container, port: number, folder, _ports: vec![port] }
}

fn spec(server: &'static str, image: Image, folder: &DataFolder) -> Spec {
    Spec {
        server,
        image,
        prefix: "levada-test",
        env: vec![],
        command: vec![],
        files: vec![],
        tmpfs: vec![],
        log: folder.log(),
        ready: Ready::Answers(Arc::new(|| true)),
        patience: PATIENCE,
    }
}

/// Runs a query on a runtime of its own, because a test may be inside one.
fn query(port: u16, sql: &str) -> Result<i32, tokio_postgres::Error> {
    let config = format!("host=127.0.0.1 port={port} user=levada password=levada-secret dbname=levada");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
                tokio::spawn(connection);
                client.query_one(sql, &[]).await.map(|row| row.get(0))
            })
        });
        asking.join().unwrap()
    })
}

fn client(port: u16) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", format!("127.0.0.1:{port}")).set("reconnect.backoff.max.ms", "200");
    config
}

async fn create_topic(port: u16, topic: &str) {
    let admin: AdminClient<DefaultClientContext> = client(port).create().unwrap();
    let new = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
    admin.create_topics([&new], &AdminOptions::new()).await.unwrap().remove(0).unwrap();
}

fn produce(port: u16, topic: &str, payload: &str) {
    let producer: BaseProducer = client(port).set("acks", "all").create().unwrap();
    producer.send(BaseRecord::<(), str>::to(topic).payload(payload)).unwrap();
    producer.flush(PATIENCE).unwrap();
}

fn first_record(port: u16, topic: &str) -> String {
    let consumer: BaseConsumer = client(port).set("group.id", unique_name("group")).create().unwrap();
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
    consumer.assign(&from).unwrap();
    let mut payload = None;
    wait_until(PATIENCE, "the record", || {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) {
            payload = Some(String::from_utf8(message.payload().unwrap().to_vec()).unwrap());
        }
        payload.is_some()
    })
    .unwrap();
    payload.unwrap()
}

/// What another client of the engine says.
fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn exists(container: &str) -> bool {
    !docker(&["ps", "--all", "--quiet", "--filter", &format!("name={container}")]).is_empty()
}

fn volumes_of(container: &str) -> Vec<String> {
    let format = "{{range .Mounts}}{{.Name}} {{end}}";
    let names = docker(&["inspect", "--format", format, container]);
    names.split_whitespace().map(str::to_owned).collect()
}

fn assert_no_volume(volumes: &[String]) {
    let left = docker(&["volume", "ls", "--quiet"]);
    assert!(!volumes.is_empty(), "nothing was tested");
    assert!(!left.lines().any(|name| volumes.iter().any(|volume| volume == name)), "{left}");
}

/// A command that runs one ignored test of this binary in a process of its own.
fn child_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("docker::tests::{name}"), "--ignored", "--nocapture"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// [TST-02] [TST-07] Kill -9, then the same data and port.
#[tokio::test]
#[ignore = "needs a container engine; .ci/engine run runs it"]
async fn a_record_survives_the_kill_of_its_container() {
    let server = kafka();
    let topic = unique_name("survivors");
    create_topic(server.port, &topic).await;
    produce(server.port, &topic, "before the kill");
    let before = server.container.pid().unwrap();
    server.container.kill().unwrap();
    assert!(!server.container.is_running());
    assert_eq!(server.container.pid(), None);
    assert!(Identity::of(before).is_none());
    TcpStream::connect(("127.0.0.1", server.port)).unwrap_err();
    server.container.kill().unwrap();
    server.container.start_again().unwrap();
    assert_ne!(server.container.pid().unwrap(), before);
    assert_eq!(first_record(server.port, &topic), "before the kill");
    // Once for each run, in the file that the rest of this crate reads.
    assert_eq!(server.logs().matches("Kafka Server started").count(), 2);
}

/// [TST-02] [TST-07] As above, and in the ways that Postgres can be ended.
#[tokio::test]
#[ignore = "needs a container engine; .ci/engine run runs it"]
async fn a_committed_row_survives_every_end_of_its_container() {
    let server = postgres();
    query(server.port, "CREATE TABLE kept AS SELECT 7 AS number").ok();
    assert_eq!(query(server.port, "SELECT number FROM kept").unwrap(), 7);
    server.container.kill().unwrap();
    query(server.port, "SELECT 1").unwrap_err();
    server.container.start_again().unwrap();
    assert_eq!(query(server.port, "SELECT number FROM kept").unwrap(), 7);
    // Fast, then immediate: the signals reach the server.
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        server.container.stop(signal, PATIENCE).unwrap();
        assert!(!server.container.is_running());
        server.container.start_again().unwrap();
    }
    assert!(server.logs().contains("received fast shutdown request"));
    assert!(server.logs().contains("received immediate shutdown request"));
    assert_eq!(query(server.port, "SELECT number FROM kept").unwrap(), 7);
}

/// [TST-04] Here only: stop and continue.
#[test]
#[ignore = "needs a container engine; .ci/engine run runs it"]
fn a_paused_container_answers_nothing_until_it_goes_on() {
    let server = postgres();
    server.container.pause().unwrap();
    server.container.pause().unwrap();
    assert!(server.container.is_running());
    let asked = Instant::now();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| query(server.port, "SELECT 5"));
        wait_until(Duration::from_millis(700), "an answer", || asking.is_finished()).unwrap_err();
        server.container.unpause().unwrap();
        assert_eq!(asking.join().unwrap().unwrap(), 5);
    });
    assert!(asked.elapsed() >= Duration::from_millis(700));
    // A paused server is killed, and stopped, as one that runs.
    server.container.pause().unwrap();
    server.container.kill().unwrap();
    assert!(matches!(server.container.pause(), Err(Error::NotRunning { server: "Postgres" })));
    server.container.start_again().unwrap();
    server.container.pause().unwrap();
    server.container.stop(Signal::SIGINT, PATIENCE).unwrap();
}

/// [TST-02]
#[test]
#[ignore = "needs a container engine; .ci/engine run runs it"]
fn a_command_runs_inside_with_its_own_outputs_and_end() {
    let server = postgres();
    let output = server.container.exec(&["sh", "-c", "echo out; echo err >&2; exit 3"]).unwrap();
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    assert_eq!(output.status.code(), Some(3));
}

/// [TST-02] A stop that is not heard ends by force.
#[test]
#[ignore = "needs a container engine; .ci/engine run runs it"]
fn a_container_that_hears_nothing_is_killed_at_the_deadline() {
    let server = postgres();
    let error = server.container.stop(Signal::SIGUSR2, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(!server.container.is_running());
}

/// [TST-02]
#[test]
#[ignore = "needs a container engine; .ci/engine run runs it"]
fn a_server_that_ends_early_says_why() {
    let folder = DataFolder::create("postgres").unwrap();
    let mut spec = spec("Postgres", Image::postgres(None).unwrap(), &folder);
    spec.env.push(("POSTGRES_PASSWORD".to_owned(), "x".to_owned()));
    spec.command = vec!["-c".to_owned(), "max_connections=many".to_owned()];
    spec.ready = Ready::Logs("is ready for nothing");
    let error = Container::start(spec).unwrap_err();
    assert!(matches!(error, Error::EndedEarly { .. }), "{error:?}");
    assert!(error.to_string().contains("max_connections"), "{error}");
    assert!(error.to_string().contains("exit status: 1"), "{error}");
}

/// [TST-02]
#[test]
#[ignore = "needs a container engine; .ci/engine run runs it"]
fn a_missing_image_is_named_with_the_variable_that_names_another() {
    let folder = DataFolder::create("kafka").unwrap();
    // A registry on this machine, at a port where nobody can listen.
    let image = Image { reference: "127.0.0.1:1/nowhere:none".to_owned(), variable: "LEVADA_KAFKA_IMAGE" };
    let error = Container::start(spec("Kafka", image, &folder)).unwrap_err();
    assert!(matches!(error, Error::Image { .. }), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:1/nowhere:none"), "{error}");
    assert!(error.to_string().contains("LEVADA_KAFKA_IMAGE"), "{error}");
}

/// [TST-05]
#[test]
#[ignore = "needs a container engine; .ci/engine run runs it"]
fn a_dropped_container_leaves_nothing() {
    let server = postgres();
    let name = server.container.name().to_owned();
    let volumes = volumes_of(&name);
    assert!(exists(&name));
    drop(server);
    assert!(!exists(&name));
    assert_no_volume(&volumes);
}

/// Not a test: the process that the test below kills.
#[test]
#[ignore = "run as a child process by another test"]
fn holds_a_container() {
    // Set by the test below alone: who runs all ignored tests runs this one, too.
    if std::env::var_os("LEVADA_HOLD_A_CONTAINER").is_none() {
        return;
    }
    let server = postgres();
    println!("\nheld {}", server.container.name());
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// [TST-05]
#[test]
#[ignore = "needs a container engine; .ci/engine run runs it"]
fn no_container_is_left_after_kill_9_of_the_test_process() {
    let mut child = child_test("holds_a_container").env("LEVADA_HOLD_A_CONTAINER", "1").spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let name = lines.find_map(|line| line.unwrap().strip_prefix("held ").map(str::to_owned)).unwrap();
    let volumes = volumes_of(&name);
    assert!(exists(&name));
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    wait_until(PATIENCE, "the removal of the container", || !exists(&name)).unwrap();
    assert_no_volume(&volumes);
}

/// [TST-02]
#[test]
fn an_engine_that_does_not_answer_is_named() {
    let mut child = child_test("asks_for_the_engine");
    let child = child.env("DOCKER_HOST", "unix:///nowhere/docker.sock").stderr(Stdio::piped());
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("no container engine answers at unix:///nowhere/docker.sock"), "{said}");
    assert!(said.contains("DOCKER_HOST"), "{said}");
}

/// Not a test: the process that the test above starts with another environment.
#[test]
#[ignore = "run as a child process by another test"]
fn asks_for_the_engine() {
    match super::engine::connect() {
        Ok(engine) => println!("an engine answers at {}", engine.address),
        Err(error) => println!("{}", error.chain()),
    }
}

//! What is left when a test process ends: nothing of ours, everything of others.

mod observe;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use levada_testcontainers::{Error, Kafka, PgBouncer, Postgres, wait_until};
use observe::{child_test, children_of, descendants_of, is_alive, listens, segment_exists, segment_of};

/// The reaper gives Postgres five seconds to end by itself.
const PATIENCE: Duration = Duration::from_secs(20);

/// Not a test: the process that the tests below end in various ways. It starts servers and a stranger, tells their
/// whereabouts, and does what its standard input says.
#[test]
#[ignore = "run as a child process by the other tests"]
fn holds_servers() {
    let kafka = Kafka::start().unwrap();
    let postgres = Postgres::start().unwrap();
    let pooler = PgBouncer::start(&postgres).unwrap();
    #[expect(clippy::zombie_processes, reason = "whoever started this process ends the stranger")]
    let stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let mut output = std::io::stdout().lock();
    writeln!(output, "\nheld folder {}", kafka.broker(1).folder().display()).unwrap();
    writeln!(output, "held folder {}", postgres.folder().display()).unwrap();
    writeln!(output, "held folder {}", pooler.folder().display()).unwrap();
    writeln!(output, "held address {}", kafka.bootstrap()).unwrap();
    writeln!(output, "held address {}", postgres.address()).unwrap();
    writeln!(output, "held address {}", pooler.address()).unwrap();
    writeln!(output, "held segment {}", segment_of(postgres.folder())).unwrap();
    writeln!(output, "held stranger {}", stranger.id()).unwrap();
    writeln!(output, "held all").unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    match line.trim() {
        "exit" => std::process::exit(0),
        "abort" => std::process::abort(),
        "panic" => panic!("asked to"),
        "pause" => {
            kafka.pause().unwrap();
            postgres.pause().unwrap();
            pooler.pause().unwrap();
        }
        "kill postmaster" => {
            Command::new("kill").args(["-9", &postgres.pid().unwrap().to_string()]).status().unwrap();
        }
        _ => {}
    }
    writeln!(output, "done").unwrap();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// A running `holds_servers` and what it told.
struct Held {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    folders: Vec<PathBuf>,
    addresses: Vec<String>,
    segment: String,
    stranger: i32,
    /// Servers, their children and the reaper.
    ours: Vec<i32>,
}

impl Held {
    fn start() -> Held {
        let mut command = child_test("holds_servers");
        command.arg("--nocapture").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (mut folders, mut addresses, mut segment, mut stranger) = (vec![], vec![], String::new(), 0);
        loop {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child ended early");
            match line.trim().split(' ').collect::<Vec<_>>()[..] {
                ["held", "folder", path] => folders.push(PathBuf::from(path)),
                ["held", "address", address] => addresses.push(address.to_owned()),
                ["held", "segment", id] => segment = id.to_owned(),
                ["held", "stranger", pid] => stranger = pid.parse().unwrap(),
                ["held", "all"] => break,
                _ => {}
            }
        }
        let mut ours = descendants_of(child.id().cast_signed());
        ours.retain(|pid| *pid != stranger);
        let held = Held { child, output, folders, addresses, segment, stranger, ours };
        // Without these, every test below would pass in vain. Java, the postmaster and its children, the reaper.
        assert!(held.ours.len() >= 6, "{:?}", held.ours);
        assert_eq!((held.folders.len(), held.addresses.len()), (3, 3));
        assert!(held.folders.iter().all(|folder| folder.is_dir()));
        assert!(held.addresses.iter().all(|address| listens(address)));
        assert!(segment_exists(&held.segment));
        assert!(is_alive(held.stranger));
        held
    }

    fn ask(&mut self, what: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
    }

    fn ask_and_wait(&mut self, what: &str) {
        self.ask(what);
        let mut line = String::new();
        while line.trim() != "done" {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0);
        }
    }

    /// Waits until everything of ours is gone, and checks that the stranger lives.
    fn assert_nothing_left(&self) {
        wait_until(PATIENCE, "the end of the servers and the reaper", || {
            !self.ours.iter().any(|pid| is_alive(*pid))
        })
        .unwrap();
        for folder in &self.folders {
            assert!(!folder.exists(), "{} is left", folder.display());
        }
        for address in &self.addresses {
            assert!(!listens(address), "{address} still listens");
        }
        assert!(!segment_exists(&self.segment), "a segment of shared memory is left");
        assert!(is_alive(self.stranger), "a process was ended that the crate had not started");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        Command::new("kill").arg(self.stranger.to_string()).status().ok();
    }
}

/// [TST-05]
#[test]
fn nothing_is_left_after_kill_9() {
    let mut held = Held::start();
    held.child.kill().unwrap();
    assert_eq!(held.child.wait().unwrap().signal(), Some(9));
    held.assert_nothing_left();
}

/// [TST-05]
#[test]
fn nothing_is_left_after_an_exit_without_drops() {
    let mut held = Held::start();
    held.ask("exit");
    assert_eq!(held.child.wait().unwrap().code(), Some(0));
    held.assert_nothing_left();
}

/// [TST-05]
#[test]
fn nothing_is_left_after_an_abort() {
    let mut held = Held::start();
    held.ask("abort");
    assert!(held.child.wait().unwrap().signal().is_some());
    held.assert_nothing_left();
}

/// [TST-05]
#[test]
fn nothing_is_left_after_a_panic() {
    let mut held = Held::start();
    held.ask("panic");
    assert_eq!(held.child.wait().unwrap().code(), Some(101));
    held.assert_nothing_left();
}

/// [TST-05] A stopped process hears no polite signal.
#[test]
fn nothing_is_left_of_paused_servers() {
    let mut held = Held::start();
    held.ask_and_wait("pause");
    held.child.kill().unwrap();
    held.child.wait().unwrap();
    held.assert_nothing_left();
}

/// [TST-05] The postmaster cannot remove its shared memory then.
#[test]
fn nothing_is_left_of_a_killed_postmaster() {
    let mut held = Held::start();
    held.ask_and_wait("kill postmaster");
    held.child.kill().unwrap();
    held.child.wait().unwrap();
    held.assert_nothing_left();
}

/// [TST-05] The reaper must not die of the Ctrl-C that ends the test: a terminal sends it to the whole process group.
#[test]
fn the_reaper_is_in_no_process_group_of_the_test() {
    let postgres = Postgres::start().unwrap();
    let group = |pid: i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        text.rsplit_once(") ").unwrap().1.split(' ').nth(2).unwrap().to_owned()
    };
    let me = std::process::id().cast_signed();
    let reaper = children_of(me).into_iter().find(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains("levada-reaper")
    });
    assert_ne!(group(reaper.expect("no reaper")), group(me));
    assert_ne!(group(postgres.pid().unwrap()), group(me));
}

/// [TST-01] [TST-05]
#[test]
fn a_dropped_handle_leaves_nothing() -> Result<(), Error> {
    let (kafka, postgres) = (Kafka::start()?, Postgres::start()?);
    let pids = [kafka.broker(1).pid().unwrap(), postgres.pid().unwrap()];
    let folders = [kafka.broker(1).folder().to_path_buf(), postgres.folder().to_path_buf()];
    let addresses = [kafka.bootstrap().to_owned(), postgres.address()];
    let segment = segment_of(postgres.folder());
    assert!(pids.into_iter().all(is_alive));
    drop((kafka, postgres));
    assert!(!pids.into_iter().any(is_alive));
    assert!(!folders.iter().any(|folder| Path::new(folder).exists()));
    assert!(!addresses.iter().any(|address| listens(address)));
    assert!(!segment_exists(&segment));
    Ok(())
}

/// [TST-05]
#[test]
fn a_server_that_was_killed_and_dropped_leaves_no_shared_memory() -> Result<(), Error> {
    let postgres = Postgres::start()?;
    let segment = segment_of(postgres.folder());
    postgres.kill();
    assert!(segment_exists(&segment), "the kill was too kind to test anything");
    drop(postgres);
    assert!(!segment_exists(&segment));
    Ok(())
}

/// Not a test: it holds a server on a disk of its own and dies of kill -9.
#[test]
#[ignore = "run as a child process by the other test"]
fn dies_with_a_disk() {
    let postgres = Postgres::builder().disk(64 << 20).start().unwrap();
    println!("\nheld {} {}", postgres.folder().display(), segment_of(&postgres.folder().join("disk")));
    let me = std::process::id().to_string();
    Command::new("kill").args(["-9", &me]).status().unwrap();
    unreachable!();
}

/// [TST-05] A mounted disk is no folder to remove.
#[test]
fn no_disk_is_left_after_kill_9() {
    let output = child_test("dies_with_a_disk").arg("--nocapture").output().unwrap();
    assert_eq!(output.status.signal(), Some(9));
    let text = String::from_utf8(output.stdout).unwrap();
    let held = text.lines().find_map(|line| line.strip_prefix("held ")).unwrap();
    let (folder, segment) = held.split_once(' ').unwrap();
    wait_until(PATIENCE, "the end of the server and its disk", || !Path::new(folder).exists()).unwrap();
    assert!(!std::fs::read_to_string("/proc/mounts").unwrap().contains(folder));
    assert!(!segment_exists(segment));
}

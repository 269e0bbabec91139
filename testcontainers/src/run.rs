//! Runs a command with servers around it: what `levada-testcontainers run` does.
//!
//! ```text
//!  start Kafka ──┐
//!                ├─▶ export addresses ─▶ CMD ─▶ stop both ─▶ the exit code of CMD
//!  start Postgres┘                        ▲
//!                    SIGINT, SIGTERM ─────┘ handed on; the servers stop when CMD has ended
//! ```

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::Doing;
use crate::exported;
use crate::kafka::start_to_share;
use crate::logs::Log;
use crate::process::{EndWith, Identity, register_process};
use crate::{Error, Kafka, Postgres};

/// How long the command may take to end after a signal before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which servers a command needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// A Kafka broker, exported as `LEVADA_KAFKA_BOOTSTRAP`.
    pub kafka: bool,
    /// A Postgres server, exported as `LEVADA_POSTGRES_URL`.
    pub postgres: bool,
}

/// What the main thread waits for.
enum Event {
    Ended(std::io::Result<ExitStatus>),
    Signalled(Signal),
}

/// Starts the servers in parallel, runs the command with their addresses in its environment, and stops them.
///
/// SIGINT and SIGTERM are handed on to the command, which has ten seconds to end. When the command fails, the ends of the
/// servers' logs go to standard error.
///
/// # Errors
///
/// Why a server or the command could not be started. A command that ran and failed is no error here: see its status.
pub fn run(needs: Needs, command: &mut Command) -> Result<ExitStatus, Error> {
    let (events, inbox) = channel();
    forward_signals(events.clone())?;
    let (kafka, postgres) = start(needs)?;
    // A signal during the start ends it all before the command has begun.
    if let Ok(Event::Signalled(signal)) = inbox.try_recv() {
        return Ok(ExitStatus::from_raw(signal as i32));
    }
    let logs = export(command, kafka.as_ref(), postgres.as_ref());
    let program = Path::new(command.get_program()).to_path_buf();
    let child = command.spawn().doing("start", &program)?;
    // None if it has ended already.
    let identity = Identity::of(child.id().cast_signed());
    if let Some(identity) = identity {
        register_process(identity, EndWith::Terminate)?;
    }
    wait_in_background(child, events);
    let status = wait_for_end(&inbox, identity).doing("wait for", &program)?;
    if !status.success() {
        logs.iter().for_each(Log::show);
    }
    Ok(status)
}

/// Tells the command where the servers are. Returns their logs.
fn export(command: &mut Command, kafka: Option<&Kafka>, postgres: Option<&Postgres>) -> Vec<Log> {
    let mut logs = Vec::new();
    if let Some(kafka) = kafka {
        let log = kafka.broker(1).log_path();
        command.env(exported::KAFKA_BOOTSTRAP, kafka.bootstrap()).env(exported::KAFKA_LOG, log);
        logs.push(Log::whole("Kafka", log.to_path_buf()));
    }
    if let Some(postgres) = postgres {
        let log = postgres.log_path();
        command.env(exported::POSTGRES_URL, postgres.url()).env(exported::POSTGRES_LOG, log);
        logs.push(Log::whole("Postgres", log.to_path_buf()));
    }
    logs
}

/// Waits for the end of the command, and hands signals on to it meanwhile.
fn wait_for_end(inbox: &Receiver<Event>, command: Option<Identity>) -> std::io::Result<ExitStatus> {
    let mut patience = None;
    loop {
        let event = match patience {
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(patience) => inbox.recv_timeout(patience),
        };
        match event {
            Ok(Event::Ended(status)) => return status,
            Ok(Event::Signalled(signal)) => {
                hand_on(command, signal);
                patience = Some(PATIENCE);
            }
            // The patience is over: the thread that listens for signals keeps the channel open.
            Err(_) => {
                hand_on(command, Signal::SIGKILL);
                patience = None;
            }
        }
    }
}

/// Starts both servers at the same time.
fn start(needs: Needs) -> Result<(Option<Kafka>, Option<Postgres>), Error> {
    thread::scope(|scope| {
        let kafka = needs.kafka.then(|| scope.spawn(start_to_share));
        let postgres = needs.postgres.then(Postgres::start).transpose();
        let kafka = match kafka.map(|starting| starting.join()) {
            None => Ok(None),
            Some(Ok(result)) => result.map(Some),
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        };
        Ok((kafka?, postgres?))
    })
}

/// Sends the command a signal, unless it has ended.
fn hand_on(process: Option<Identity>, signal: Signal) {
    if let Some(process) = process {
        process.signal(signal);
    }
}

/// Turns SIGINT and SIGTERM into events. The thread ends with the process.
fn forward_signals(events: Sender<Event>) -> Result<(), Error> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).doing("listen for", Path::new("signals"))?;
    thread::spawn(move || {
        for number in signals.forever() {
            let signal = if number == SIGINT { Signal::SIGINT } else { Signal::SIGTERM };
            if events.send(Event::Signalled(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

fn wait_in_background(mut child: Child, events: Sender<Event>) {
    thread::spawn(move || {
        // Nobody receives when the main thread has given up.
        events.send(Event::Ended(child.wait())).ok();
    });
}

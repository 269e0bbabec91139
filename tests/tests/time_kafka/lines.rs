//! What the process logs, as a user would read it.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use levada_testcontainers::wait_until;
use levada_tests::process::PATIENCE;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the log of this process from now on.
pub(crate) fn keep() {
    static KEPT: OnceLock<()> = OnceLock::new();
    KEPT.get_or_init(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init());
}

/// Returns the lines that name a topic.
pub(crate) fn of(topic: &str) -> Vec<String> {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let log = String::from_utf8_lossy(&log);
    log.lines().filter(|line| line.contains(topic)).map(str::to_owned).collect()
}

/// Waits for a line about a topic that holds all of `words`.
#[track_caller]
pub(crate) fn wait_for(topic: &str, words: &[&str]) {
    let holds_all = |line: &String| words.iter().all(|word| line.contains(word));
    let found = wait_until(PATIENCE, "a line of the log", || of(topic).iter().any(holds_all));
    assert!(found.is_ok(), "no line with {words:?} among {:#?}", of(topic));
}

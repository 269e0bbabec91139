//! Which process is meant: a number alone is reused by the system, a number with its start time is not.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process, told apart from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The process number.
    pub(crate) pid: i32,
    /// The start time in clock ticks since boot; an `exec` keeps it.
    pub(crate) started: u64,
}

/// The fields of `/proc/PID/stat` that we use.
pub(super) struct Stat {
    pub(super) state: char,
    pub(super) parent: i32,
    pub(super) started: u64,
}

impl Identity {
    /// Returns the identity of the process that has this number now.
    pub(crate) fn of(pid: i32) -> Option<Identity> {
        read_stat(pid).map(|stat| Identity { pid, started: stat.started })
    }

    /// Tells whether the process still exists; one that ended and was not waited for is gone.
    pub(super) fn is_alive(self) -> bool {
        read_stat(self.pid)
            .is_some_and(|stat| stat.started == self.started && !matches!(stat.state, 'Z' | 'X'))
    }

    /// Tells whether all of its threads are stopped, or it is gone. A stop takes effect when a thread next runs, which is late on
    /// a busy machine; until then the others go on.
    pub(super) fn is_stopped(self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return true };
        let states = threads.flatten().filter_map(|thread| {
            parse_stat(&fs::read_to_string(thread.path().join("stat")).ok()?).map(|stat| stat.state)
        });
        !self.is_alive() || states.into_iter().all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
    }

    /// Sends a signal, unless the process is gone. A process that ends in between is no error.
    pub(crate) fn signal(self, signal: Signal) {
        if self.is_alive() {
            kill(Pid::from_raw(self.pid), signal).ok();
        }
    }
}

/// Reads what the system says about a process; `None` when there is none.
pub(super) fn read_stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses the text of `/proc/PID/stat` (proc(5)): the command in brackets may hold spaces and brackets itself.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, after_command) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = after_command.split_ascii_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        // Field 22 of the line, of which the first two stand before the bracket.
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Identity, parse_stat};

    #[test]
    fn a_command_with_brackets_is_no_field() {
        let line = "7 (a) b (c) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.state, stat.parent, stat.started), ('S', 3, 4711));
    }

    #[test]
    fn another_start_time_is_another_process() {
        let me = Identity::of(std::process::id().cast_signed()).unwrap();
        assert!(me.is_alive());
        assert!(!Identity { started: me.started + 1, ..me }.is_alive());
    }
}

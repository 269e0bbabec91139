//! Which process this is, and whether another one of the same machine lives.

use std::fs;

use serde::{Deserialize, Serialize};

/// Names a process beyond the reuse of process ids.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessId {
    /// The machine's name, for people.
    pub host: String,
    /// Names the start of the machine and the space of process ids, so that a restarted machine or another container is
    /// not taken for this one. Empty where the system does not tell.
    pub host_id: String,
    /// The process id.
    pub pid: u32,
    /// When it started, in the system's ticks since the machine did.
    pub started: u64,
}

impl ProcessId {
    /// Describes this process.
    pub fn current() -> Self {
        let pid = std::process::id();
        let host = read("/proc/sys/kernel/hostname").unwrap_or_else(|| "unknown host".to_owned());
        Self { host, host_id: host_id().unwrap_or_default(), pid, started: started(pid).unwrap_or_default() }
    }

    /// Tells whether the process lives, if it is one of the same machine as `observer`; `None` if it is of another one, or
    /// the system does not tell.
    pub(crate) fn lives(&self, observer: &ProcessId) -> Option<bool> {
        if self.host_id.is_empty() || self.host_id != observer.host_id {
            return None;
        }
        Some(started(self.pid) == Some(self.started))
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn host_id() -> Option<String> {
    let boot = read("/proc/sys/kernel/random/boot_id")?;
    let space = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{boot} {}", space.display()))
}

/// Returns when a living process started.
fn started(pid: u32) -> Option<u64> {
    parse_started(&read(&format!("/proc/{pid}/stat"))?)
}

/// The name in the second field may hold anything, so fields count from the last parenthesis. The state is the third
/// field, the start the 22nd; `Z` and `X` have ended and only wait for their parent.
fn parse_started(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{ProcessId, parse_started};

    /// [CHK-15]
    #[test]
    fn a_reused_process_id_is_another_process() {
        let me = ProcessId::current();
        assert_eq!(me.lives(&me), Some(true));
        let before = ProcessId { started: me.started + 1, ..me.clone() };
        assert_eq!(before.lives(&me), Some(false));
        let elsewhere = ProcessId { host_id: "another".into(), ..me.clone() };
        assert_eq!(elsewhere.lives(&me), None);
    }

    /// [CHK-15] A process that was killed and not yet collected does not live.
    #[test]
    fn the_name_of_a_process_does_not_confuse() {
        let fields = "1 1 1 0 -1 4 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1";
        assert_eq!(parse_started(&format!("7 (a) S b) S {fields}")), Some(777));
        assert_eq!(parse_started(&format!("7 (a) Z {fields}")), None);
    }
}

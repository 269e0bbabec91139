//! The servers' logs: kept while the server's folder lives, shown for a failing test only.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many lines are shown: enough for a stack trace of the broker.
const SHOWN_LINES: usize = 40;

/// How many earlier complaints are shown before them.
const SHOWN_COMPLAINTS: usize = 10;

/// The folder that logs of failing tests are copied to, if it is set.
const KEEP: &str = "LEVADA_KEEP_LOGS";

/// A log file from a certain byte on.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    /// Whose log it is, in messages.
    owner: Cow<'static, str>,
    path: PathBuf,
    from: u64,
}

impl Log {
    /// Takes a log from its first byte.
    pub(crate) fn whole(owner: impl Into<Cow<'static, str>>, path: PathBuf) -> Log {
        Log { owner: owner.into(), path, from: 0 }
    }

    /// Takes a log from its present end: what happens while a test uses a shared server.
    pub(crate) fn from_now(server: &'static str, path: PathBuf) -> Log {
        let from = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Log { owner: server.into(), path, from }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the text; empty when there is no file.
    pub(crate) fn read(&self) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&self.path)
            && file.seek(SeekFrom::Start(self.from)).is_ok()
        {
            file.read_to_end(&mut bytes).ok();
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the last lines, after the last complaints before them.
    pub(crate) fn tail(&self) -> String {
        with_complaints(&self.read(), SHOWN_LINES)
    }

    /// Shows the end of the log on standard error, where the test harness shows it for failing tests only.
    ///
    /// Copies the whole file to the folder `LEVADA_KEEP_LOGS`, if that is set: the server's folder is about to go.
    pub(crate) fn show(&self) {
        eprintln!("---- the end of the log of {} ----\n{}\n---- end ----", self.owner, self.tail());
        if let Some(folder) = std::env::var_os(KEEP).map(PathBuf::from) {
            match self.keep(&folder) {
                Ok(kept) => eprintln!("the whole log is in {}", kept.display()),
                Err(error) => eprintln!("the log cannot be kept in {}: {error}", folder.display()),
            }
        }
    }

    fn keep(&self, folder: &Path) -> std::io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        // The server's folder has a unique name.
        let name = self.path.parent().and_then(Path::file_name).unwrap_or_default();
        let kept = folder.join(name).with_extension("log");
        fs::copy(&self.path, &kept)?;
        Ok(kept)
    }
}

/// A log that is shown when it is dropped by a failing test.
#[derive(Debug)]
pub(crate) struct ShownLog(pub(crate) Log);

impl ShownLog {
    /// Takes the log of a shared server from its present end.
    pub(crate) fn from_now(server: &'static str, path: &Path) -> Arc<ShownLog> {
        Arc::new(ShownLog(Log::from_now(server, path.to_path_buf())))
    }
}

impl Drop for ShownLog {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.show();
        }
    }
}

/// Returns the last lines of a text.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Returns the last lines of a log, and before them the last complaints that they do not hold: a server that cannot start
/// says why, and then at length how it shuts down.
fn with_complaints(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (earlier, last) = lines.split_at(lines.len().saturating_sub(count));
    let is_complaint =
        |line: &&&str| [" ERROR ", " ERROR: ", " FATAL ", " FATAL: "].iter().any(|word| line.contains(word));
    let mut complaints: Vec<&str> =
        earlier.iter().filter(is_complaint).rev().take(SHOWN_COMPLAINTS).copied().collect();
    complaints.reverse();
    [complaints.as_slice(), last].concat().join("\n")
}

#[cfg(test)]
mod tests {
    use super::with_complaints;

    /// [TST-06]
    #[test]
    fn the_cause_is_shown_although_much_was_said_after_it() {
        let text = "a\n12:00 [main] ERROR Server - cause\nb\nc\n12:01 [main] INFO Server - end";
        assert_eq!(
            with_complaints(text, 2),
            "12:00 [main] ERROR Server - cause\nc\n12:01 [main] INFO Server - end"
        );
        assert_eq!(with_complaints("a\nb", 2), "a\nb");
    }
}

//! A recipe as a child process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

/// What a recipe came to.
pub(crate) struct Ended {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<i32>,
}

impl Ended {
    /// Returns what was printed, if it ended well.
    pub(crate) fn well(self) -> String {
        assert_eq!(self.code, Some(0), "out: {}\nerr: {}", self.out, self.err);
        self.out
    }
}

/// A recipe that runs. It is killed if the test gives up before its end.
pub(crate) struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(path: &str, arguments: &[&str]) -> Program {
        let mut child = Command::new(path)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the recipe starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Program { child, out }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().expect("a process id")
    }

    /// Waits for the next line that is printed.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("text");
        assert!(line.ends_with('\n'), "the recipe ended: {line:?}");
        line.trim_end().to_owned()
    }

    /// Waits for its end. A recipe prints little on its standard error, which fits into the pipe.
    pub(crate) fn end(mut self) -> Ended {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).expect("text");
        self.child.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
        let code = self.child.wait().expect("its end").code();
        Ended { out, err, code }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended, or the test has failed.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs a recipe to its end and returns what it printed.
pub(crate) fn run(path: &str, arguments: &[&str]) -> String {
    Program::start(path, arguments).end().well()
}

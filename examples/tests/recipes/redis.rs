//! A Redis of the test's own, which answers at a socket in a folder: no port that somebody else could take.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A server that ends with the test.
pub(crate) struct Redis {
    server: Child,
    folder: tempfile::TempDir,
}

impl Redis {
    /// Starts it and waits until it says that it takes connections.
    pub(crate) fn start() -> Redis {
        let folder = tempfile::tempdir().expect("a folder");
        let mut server = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", "redis.sock"])
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("no redis-server ({error}); on Debian: sudo apt-get install --yes redis-server")
            });
        let log = BufReader::new(server.stdout.take().expect("piped"));
        let redis = Redis { server, folder };
        let mut lines = log.lines().map(|line| line.expect("text"));
        assert!(
            lines.any(|line| line.to_lowercase().contains("ready to accept connections")),
            "redis-server has ended"
        );
        // It writes little from here on; what is not read would end it.
        std::thread::spawn(move || lines.for_each(drop));
        redis
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.folder.path().join("redis.sock").display())
    }

    /// Sends a command by the server's own client, and returns what that prints.
    pub(crate) fn ask(&self, command: &[&str]) -> String {
        let asked = Command::new("redis-cli")
            .args(["-s", "redis.sock"])
            .args(command)
            .current_dir(&self.folder)
            .output();
        let asked = asked.expect("redis-cli, which comes with redis-server");
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8(asked.stdout).expect("text").trim_end().to_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.server.kill().ok();
        self.server.wait().ok();
    }
}

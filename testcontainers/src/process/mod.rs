//! Server processes: started so that they cannot outlive us, and ended in every way a test may want.
//!
//! ```text
//!  test process ──pipe──▶ reaper (own session)          end of file = the test process is gone, however it went
//!       │                   │ ends registered processes, removes registered folders
//!       └─spawn─▶ gate ─exec─▶ server (own process group)
//! ```
//!
//! The *gate* is a shell that waits for one line before it becomes the server. The line is sent after the reaper knows
//! the process, so there is no moment at which a server runs that nobody would end.

mod children;
mod disk;
mod folder;
mod identity;
mod launch;
mod local;
mod ports;
mod reaper;
mod server;

pub(crate) use folder::DataFolder;
pub(crate) use identity::Identity;
pub(crate) use launch::{Launch, User};
pub(crate) use local::{LocalServer, Ready};
pub(crate) use ports::{Port, on_free_ports};
pub(crate) use reaper::{EndWith, mark, register_process};
#[cfg(feature = "docker")]
pub(crate) use reaper::{forget_container, register_container};
pub(crate) use server::ServerProcess;
#[cfg(feature = "docker")]
pub(crate) use server::ended_early;

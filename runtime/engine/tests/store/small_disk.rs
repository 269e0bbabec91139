//! A file system that can be full, or read-only.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::Uid;
use tempfile::TempDir;

/// A file system in memory of one megabyte.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts it; only root may, and the test says so loudly when it is not run.
    pub(crate) fn mount() -> Option<SmallDisk> {
        if !Uid::effective().is_root() {
            eprintln!("NOT TESTED: only root can mount a small disk");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let mounted = mount(Some("tmpfs"), folder.path(), Some("tmpfs"), flags, Some("size=1m,mode=0755"));
        if let Err(error) = mounted {
            eprintln!("NOT TESTED: a small disk cannot be mounted here: {error}");
            return None;
        }
        Some(SmallDisk(folder))
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    pub(crate) fn set_read_only(&self, read_only: bool) {
        let flags = MsFlags::MS_REMOUNT | if read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() };
        let remount = || mount(None::<&str>, self.0.path(), None::<&str>, flags, None::<&str>);
        loop {
            match remount() {
                // A file is being written, on another thread.
                Err(Errno::EBUSY) => std::thread::yield_now(),
                outcome => return outcome.unwrap(),
            }
        }
    }

    pub(crate) fn fill(&self) {
        let mut filler =
            File::options().create(true).append(true).open(self.0.path().join("filler")).unwrap();
        for size in [4096, 1] {
            let block = vec![0; size];
            loop {
                match filler.write_all(&block) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    pub(crate) fn free(&self) {
        fs::remove_file(self.0.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        umount2(self.0.path(), MntFlags::MNT_DETACH).ok();
    }
}

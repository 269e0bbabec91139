//! A disk that can be full: a file system in memory of a given size.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::Uid;

use crate::Error;
use crate::error::Doing;

/// The file that takes the room.
const FILLER: &str = "filler";

/// A mounted `tmpfs`. Unmounted on drop; the reaper unmounts what lies in a folder that it removes.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts an empty disk of `bytes` bytes on a new folder. Only root may.
    pub(super) fn mount(path: &Path, bytes: u64) -> Result<SmallDisk, Error> {
        if !Uid::effective().is_root() {
            return Err(Error::NeedsRoot { action: "mount a small disk" });
        }
        DirBuilder::new().mode(0o755).create(path).doing("create the folder", path)?;
        let options = format!("size={bytes},mode=0755");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("tmpfs"), path, Some("tmpfs"), flags, Some(options.as_str()))
            .map_err(io::Error::from)
            .doing("mount a small disk on", path)?;
        Ok(SmallDisk { path: path.to_path_buf() })
    }

    /// Writes until the disk is full.
    pub(crate) fn fill(&self) -> Result<(), Error> {
        let path = self.path.join(FILLER);
        let mut filler = File::options().create(true).append(true).open(&path).doing("open", &path)?;
        // The last rounds take the odd bytes that a large block does not fit into.
        for size in [1 << 20, 4096, 1] {
            let block = vec![0; size];
            loop {
                match filler.write_all(&block) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).doing("fill", &path),
                }
            }
        }
        Ok(())
    }

    /// Gives the room back.
    pub(crate) fn free(&self) -> Result<(), Error> {
        let path = self.path.join(FILLER);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).doing("remove", &path),
            _ => Ok(()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a reader of the log may still look at a file. What fails now, the reaper tries again.
        umount2(&self.path, MntFlags::MNT_DETACH).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::SmallDisk;

    /// [TST-04]
    #[test]
    fn a_filled_disk_takes_nothing_until_it_is_freed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let disk = SmallDisk::mount(&path, 4 << 20).unwrap();
        fs::write(path.join("before"), [1; 1000]).unwrap();
        disk.fill().unwrap();
        let refused = fs::write(path.join("full"), [1; 1000]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read(path.join("before")).unwrap(), [1; 1000]);
        disk.free().unwrap();
        fs::write(path.join("after"), [1; 1000]).unwrap();
        drop(disk);
        assert!(!path.join("before").exists(), "the disk is still mounted");
    }
}

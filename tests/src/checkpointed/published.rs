//! What the transactional file sink has published.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::due::Due;
use super::{Fed, Verdict};

/// Judges published files, file by file as they appear: of each key the numbers 0, 1, 2, …, each once, in this order.
#[derive(Debug)]
pub struct Published {
    folder: PathBuf,
    read: BTreeSet<PathBuf>,
    due: Due,
}

impl Published {
    /// Judges the files of `home`, from the first on.
    pub fn of(home: &Path) -> Self {
        Self { folder: home.join("out"), read: BTreeSet::new(), due: Due::default() }
    }

    /// Reads the files that were not there at the last look, in the order of their names.
    ///
    /// # Errors
    /// The first number that comes again, or before one that is due.
    pub fn look(&mut self) -> Verdict {
        for path in files_in(&self.folder)? {
            if self.read.insert(path.clone()) {
                self.read_file(&path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path) -> Verdict {
        for line in whole(path)?.lines() {
            self.due.take(line, &path.display())?;
        }
        Ok(())
    }

    /// Returns how many records were read.
    pub fn records(&self) -> u64 {
        self.due.lines()
    }

    /// Returns how many files were read.
    pub fn files(&self) -> usize {
        self.read.len()
    }

    /// Returns the newest attempt that has published a file; 0 if none has.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn newest_attempt(&self) -> Result<u64, std::io::Error> {
        let attempt = |path: &PathBuf| {
            let name = path.file_name()?.to_str()?;
            name.split('.').nth(2)?.split('-').next()?.parse::<u64>().ok()
        };
        Ok(files_in(&self.folder)?.iter().filter_map(attempt).max().unwrap_or_default())
    }

    /// Judges everything anew, from the first file on, against what was fed.
    ///
    /// # Errors
    /// What is lost, doubled or out of order.
    pub fn judge_all(home: &Path, fed: &Fed) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let mut anew = Self::of(home);
        anew.look()?;
        fed.compare(anew.due.counts())?;
        Ok(anew)
    }

    /// Returns the files that wait for a commit, or were left behind.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn waiting(home: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
        files_in(&home.join("out").join(".pending"))
    }
}

/// Reads a file that was published: its last line is whole.
pub(crate) fn whole(path: &Path) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let text = fs::read_to_string(path)?;
    match text.ends_with('\n') {
        true => Ok(text),
        false => Err(format!("{} is not whole", path.display()).into()),
    }
}

/// Lists the files of a folder, sorted by their names.
pub(crate) fn files_in(folder: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

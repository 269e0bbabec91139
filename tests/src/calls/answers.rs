//! What the job has published.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::ways::{WAYS, noted_ends, number_of};
use super::{Verdict, answer_to};
use crate::checkpointed::{files_in, whole};

/// Judges published files, as they appear: each number has its own answer, and comes once.
#[derive(Debug)]
pub struct Answers {
    folder: PathBuf,
    read: BTreeSet<PathBuf>,
    /// Whether a number was found.
    found: Vec<bool>,
    count: u64,
}

impl Answers {
    /// Judges the files of `home`.
    pub fn of(home: &Path) -> Self {
        Self { folder: home.join("out"), read: BTreeSet::new(), found: Vec::new(), count: 0 }
    }

    /// Reads the files that were not there at the last look.
    ///
    /// # Errors
    /// The first number that comes again or has another answer.
    pub fn look(&mut self) -> Verdict {
        for path in files_in(&self.folder)? {
            if self.read.insert(path.clone()) {
                self.read_file(&path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path) -> Verdict {
        whole(path)?.lines().try_for_each(|line| self.take(line, path))
    }

    fn take(&mut self, line: &str, path: &Path) -> Verdict {
        let (number, answer) = line.split_once(' ').ok_or_else(|| format!("a strange line: {line:?}"))?;
        let (number, answer) = (number.parse::<u64>()?, answer.parse::<u64>()?);
        if answer != answer_to(number) {
            return Err(format!("{number} has another answer, in {}", path.display()).into());
        }
        let place = usize::try_from(number)?;
        if place >= self.found.len() {
            self.found.resize(place + 1, false);
        }
        if std::mem::replace(&mut self.found[place], true) {
            return Err(format!("{number} is doubled, in {}", path.display()).into());
        }
        self.count += 1;
        Ok(())
    }

    /// Returns how many answers were read.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns how many files were read.
    pub fn files(&self) -> usize {
        self.read.len()
    }

    /// Judges everything anew, against the ends that the last life has noted.
    ///
    /// # Errors
    /// What is lost, doubled or wrong.
    pub fn judge_all(home: &Path) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let mut anew = Self::of(home);
        anew.look()?;
        let ends = noted_ends(&home.join("ends"))?;
        for (way, end) in (0..).zip(&ends) {
            let is_lost = |number: &u64| !anew.found.get(*number as usize).is_some_and(|found| *found);
            let mut lost = (way..*end).step_by(WAYS as usize).filter(is_lost);
            if let Some(first) = lost.next() {
                return Err(format!("{first} is lost, and {} more of its way", lost.count()).into());
            }
        }
        let asked: u64 = ends.iter().map(|end| end / WAYS).sum();
        match anew.count == asked {
            true => Ok(anew),
            false => Err(format!("{} answers, and {asked} numbers were counted", anew.count).into()),
        }
    }

    /// Judges whether the answers of each way came in its order, from checkpoint to checkpoint and within each file.
    ///
    /// # Errors
    /// The first number that was overtaken.
    pub fn judge_order(home: &Path) -> Verdict {
        // Their names tell attempt, checkpoint and subtask, each with zeros in front.
        let mut newest = [None; WAYS as usize];
        let (mut checkpoint, mut so_far) = (String::new(), newest);
        for path in files_in(&home.join("out"))? {
            let of = checkpoint_of(&path);
            if of != checkpoint {
                (checkpoint, so_far) = (of, newest);
            }
            let mut here = so_far;
            for number in whole(&path)?.lines().filter_map(number_of) {
                let way = (number % WAYS) as usize;
                if here[way] >= Some(number) {
                    return Err(format!("{number} was overtaken, in {}", path.display()).into());
                }
                here[way] = Some(number);
                newest[way] = newest[way].max(Some(number));
            }
        }
        Ok(())
    }

    /// Returns the files that wait for a commit, or were left behind.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn waiting(home: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
        let files = fs::read_dir(home.join("out").join(".pending"))?;
        files.map(|entry| Ok(entry?.path())).collect()
    }
}

/// What the files of one checkpoint have in common: their names up to the subtask.
fn checkpoint_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').map(|(checkpoint, _)| checkpoint.to_owned()).unwrap_or_default()
}

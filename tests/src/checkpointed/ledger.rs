//! What the appending sink has sent: the guarantee of a write-ahead sink whose markers are apart from the data, and not
//! less than it.
//!
//! Nothing is lost. A segment comes again only if its marker was not there when its sender ended, and then it is the same
//! segment, whole. It is the last one of that sender: each is marked before the next is sent. A sender sends in the order
//! of the checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::appended::name;
use super::markers::{self, Name};
use super::{Fed, Verdict, key_and_number};

/// Judges what was sent, life by life.
#[derive(Debug)]
pub struct Ledger {
    home: PathBuf,
    /// How much of each file was read.
    read: BTreeMap<PathBuf, usize>,
    /// The segments that were sent whole: time, then lines.
    sent: BTreeMap<Name, Vec<String>>,
    /// Beginnings of segments whose end a crash has cut off.
    torn: Vec<(Name, Vec<String>)>,
    /// Segments whose sender ended before their marker was there.
    may_come_again: BTreeSet<Name>,
    repeated: u64,
}

/// What stands in a file, one after the other.
enum Piece {
    /// A sink began to write; tells whether the segment before it was marked then.
    Opened { is_marked: bool },
    Segment {
        name: Name,
        /// The time, and the records.
        lines: Vec<String>,
        is_whole: bool,
    },
}

impl Ledger {
    /// Judges the output of `home`, from the beginning.
    pub fn of(home: &Path) -> Self {
        Self {
            home: home.to_owned(),
            read: BTreeMap::new(),
            sent: BTreeMap::new(),
            torn: Vec::new(),
            may_come_again: BTreeSet::new(),
            repeated: 0,
        }
    }

    /// Reads what was appended since the last look; to be called after each life, when its process is gone.
    ///
    /// # Errors
    /// A repeat that nothing explains, a disorder, or a marker without its segment.
    pub fn look(&mut self) -> Verdict {
        let marked = markers::read(&self.home)?;
        let mut ended = BTreeSet::new();
        for file in fs::read_dir(self.home.join("out"))? {
            let path = file?.path();
            let text = fs::read_to_string(&path)?;
            let from = self.read.insert(path.clone(), text.len()).unwrap_or_default();
            ended.extend(self.read_pieces(&text[from..])?);
        }
        // Each sender's last segment of this life.
        self.may_come_again.extend(ended.into_iter().filter(|last| !marked.contains(last)));
        match marked.iter().find(|name| !self.sent.contains_key(name)) {
            Some(name) => Err(format!("segment {name:?} is lost: it counts as sent, and was not").into()),
            None => Ok(()),
        }
    }

    /// Judges what one sender did in a life, and returns its last segment.
    fn read_pieces(&mut self, text: &str) -> Result<Option<Name>, Box<dyn std::error::Error + Send + Sync>> {
        let mut last: Option<Name> = None;
        for piece in pieces(text)? {
            match piece {
                Piece::Opened { is_marked } => {
                    // In this life: what an earlier one has ended with was judged by its markers.
                    self.may_come_again.extend(last.take().filter(|_| !is_marked));
                }
                Piece::Segment { name, lines, is_whole } => {
                    if last.is_some_and(|last| last >= name) {
                        return Err(format!("segment {name:?} was sent after {last:?}").into());
                    }
                    last = Some(name);
                    self.take(name, lines, is_whole)?;
                }
            }
        }
        Ok(last)
    }

    fn take(&mut self, name: Name, lines: Vec<String>, is_whole: bool) -> Verdict {
        let began_before = self.sent.contains_key(&name) || self.torn.iter().any(|(torn, _)| *torn == name);
        if began_before && !self.may_come_again.remove(&name) {
            return Err(format!("segment {name:?} is doubled, though it was marked as sent").into());
        }
        if !is_whole {
            self.torn.push((name, lines));
            return Ok(());
        }
        match self.sent.get(&name) {
            Some(first) if *first != lines => Err(format!("segment {name:?} has changed").into()),
            Some(_) => {
                self.repeated += 1;
                Ok(())
            }
            None => {
                self.sent.insert(name, lines);
                Ok(())
            }
        }
    }

    /// Judges everything, when the job has come to its end: every value once in the segments, in order.
    ///
    /// # Errors
    /// What is lost, doubled or out of order.
    pub fn judge_all(&self, fed: &Fed) -> Verdict {
        for (name, beginning) in &self.torn {
            let is_a_beginning = self.sent.get(name).is_some_and(|whole| whole.starts_with(beginning));
            if !is_a_beginning {
                return Err(format!("segment {name:?} was cut off, and did not come again as it was").into());
            }
        }
        fed.compare(&self.values()?)
    }

    /// Counts the values of each key in the segments, in the order of the checkpoints.
    ///
    /// # Errors
    /// The first that comes again, or before one that is due.
    fn values(&self) -> Result<BTreeMap<String, u64>, Box<dyn std::error::Error + Send + Sync>> {
        let mut due: BTreeMap<String, u64> = BTreeMap::new();
        for (name, lines) in &self.sent {
            for line in lines.iter().skip(1) {
                let (key, number) =
                    key_and_number(line).ok_or_else(|| format!("a strange line: {line:?}"))?;
                let due = due.entry(key.to_owned()).or_default();
                if number != *due {
                    return Err(format!("{key} {number} where {due} is due, in segment {name:?}").into());
                }
                *due += 1;
            }
        }
        Ok(due)
    }

    /// Returns how many segments were sent, and how many of them were sent again or begun again.
    pub fn segments(&self) -> (usize, u64, usize) {
        (self.sent.len(), self.repeated, self.torn.len())
    }
}

/// Parts the text of one file. A line of a torn segment that is not whole is left out.
fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut open: Option<(Name, usize, Vec<String>)> = None;
    let torn = |open: Option<(Name, usize, Vec<String>)>| {
        open.map(|(name, _, mut lines)| {
            // It may be half a line.
            lines.pop();
            Piece::Segment { name, lines, is_whole: false }
        })
    };
    for line in text.lines() {
        if let Some(state) = line.strip_prefix("opened ") {
            pieces.extend(torn(open.take()));
            pieces.push(Piece::Opened { is_marked: state == "marked" });
        } else if let Some(header) = line.strip_prefix("segment ") {
            if open.is_some() {
                return Err(format!("a segment inside of another: {line:?}"));
            }
            let mut words = header.split(' ').skip(3);
            // A header that is cut off names nobody: nothing of the segment is there.
            let (Some(name), Some(time), Some(Ok(records))) =
                (name(header), words.next(), words.next().map(str::parse))
            else {
                continue;
            };
            open = Some((name, records, vec![time.to_owned()]));
        } else if let Some(tail) = line.strip_prefix("end ") {
            match open.take() {
                Some((opened, records, lines))
                    if name(tail) == Some(opened) && lines.len() == records + 1 =>
                {
                    pieces.push(Piece::Segment { name: opened, lines, is_whole: true });
                }
                other => pieces.extend(torn(other)),
            }
        } else if let Some((_, _, lines)) = &mut open {
            lines.push(line.to_owned());
        } else if !line.is_empty() {
            return Err(format!("a line outside of a segment: {line:?}"));
        }
    }
    pieces.extend(torn(open));
    Ok(pieces)
}

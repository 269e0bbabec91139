//! Typed access to the YAML tree that collects every error instead of stopping at the first.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::interpolate::interpolate;
use super::yaml::{Entry, Kind, Node, is_null};

/// One thing that is wrong in a pipeline file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The line, from 1.
    pub line: usize,
    /// The field, as the path of keys to it; empty for errors of the whole file.
    pub field: String,
    /// What is wrong and what was expected.
    pub message: String,
}

impl ConfigError {
    pub(crate) fn new(line: usize, field: &str, message: String) -> Self {
        Self { line, field: field.to_owned(), message }
    }
}

/// Everything that is wrong in a pipeline file, in the order of its lines.
#[derive(Debug)]
pub struct ConfigErrors {
    /// The file.
    pub file: PathBuf,
    /// At least one error.
    pub errors: Vec<ConfigError>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.errors.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:{}: ", self.file.display(), error.line)?;
            if !error.field.is_empty() {
                write!(f, "{}: ", error.field)?;
            }
            f.write_str(&error.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects errors while several readers hold on to it.
#[derive(Debug, Default)]
pub(crate) struct Errors(RefCell<Vec<ConfigError>>);

impl Errors {
    pub(crate) fn push(&self, error: ConfigError) {
        self.0.borrow_mut().push(error);
    }

    pub(crate) fn into_sorted(self) -> Vec<ConfigError> {
        let mut errors = self.0.into_inner();
        errors.sort_by_key(|error| error.line);
        errors
    }
}

/// The fields of one section. Fields that nobody asked for are errors.
pub(crate) struct Section<'a> {
    path: String,
    line: usize,
    entries: &'a [Entry],
    known: RefCell<Vec<&'static str>>,
    errors: &'a Errors,
}

/// One value with its place.
pub(crate) struct Field<'a> {
    path: String,
    line: usize,
    node: &'a Node,
    errors: &'a Errors,
}

impl<'a> Section<'a> {
    pub(crate) fn root(node: &'a Node, errors: &'a Errors) -> Option<Self> {
        Field { path: String::new(), line: node.line, node, errors }.section()
    }

    /// Returns a field if it is there and not null.
    pub(crate) fn optional(&self, name: &'static str) -> Option<Field<'a>> {
        self.known.borrow_mut().push(name);
        let entry = self.entries.iter().find(|entry| entry.key == name)?;
        let is_set = !matches!(&entry.value.kind, Kind::Scalar { text, is_plain: true } if is_null(text));
        is_set.then(|| self.field(entry))
    }

    /// Returns a field, or reports that it is missing.
    pub(crate) fn required(&self, name: &'static str, expected: &str) -> Option<Field<'a>> {
        let field = self.optional(name);
        if field.is_none() {
            let message = format!("missing; expected {expected}");
            self.errors.push(ConfigError::new(self.line, &self.join(name), message));
        }
        field
    }

    /// Walks through all fields, of whatever name: for sections whose keys the user chooses.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        self.entries.iter().map(|entry| (entry.key.as_str(), self.field(entry)))
    }

    /// Reports the fields that nobody asked for.
    pub(crate) fn finish(self) {
        let known = self.known.borrow();
        for entry in self.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let nearest = known.iter().min_by_key(|name| distance(name, &entry.key));
            let hint = nearest.filter(|name| distance(name, &entry.key) <= 2);
            let message = match hint {
                Some(hint) => format!("unknown field; did you mean {hint:?}?"),
                None => format!("unknown field; expected one of {}", known.join(", ")),
            };
            self.errors.push(ConfigError::new(entry.line, &self.join(&entry.key), message));
        }
    }

    fn field(&self, entry: &'a Entry) -> Field<'a> {
        Field { path: self.join(&entry.key), line: entry.line, node: &entry.value, errors: self.errors }
    }

    fn join(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

impl<'a> Field<'a> {
    /// Reports an error at this field.
    pub(crate) fn error(&self, message: impl Into<String>) {
        self.errors.push(ConfigError::new(self.line, &self.path, message.into()));
    }

    /// Reads a section.
    pub(crate) fn section(&self) -> Option<Section<'a>> {
        let Kind::Map(entries) = &self.node.kind else {
            self.error(format!("expected a section, found {}", self.node.describe()));
            return None;
        };
        let known = RefCell::default();
        Some(Section { path: self.path.clone(), line: self.line, entries, known, errors: self.errors })
    }

    /// Reads text, with variables and files put in.
    pub(crate) fn text(&self) -> Option<String> {
        let Kind::Scalar { text, .. } = &self.node.kind else {
            self.error(format!("expected a single value, found {}", self.node.describe()));
            return None;
        };
        interpolate(text).map_err(|message| self.error(message)).ok()
    }

    /// Reads text that must not be empty.
    pub(crate) fn name(&self) -> Option<String> {
        let text = self.text()?;
        if text.is_empty() {
            self.error("must not be empty");
            return None;
        }
        Some(text)
    }

    /// Reads one text or a list of texts.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        let Kind::List(items) = &self.node.kind else {
            return self.name().map(|name| vec![name]);
        };
        if items.is_empty() {
            self.error("must name at least one");
            return None;
        }
        // Collecting first reports every item, not only the first bad one.
        let names: Vec<_> = self.items()?.iter().map(Field::name).collect();
        names.into_iter().collect()
    }

    /// Reads one name or a list of names, each of which may stand there once.
    pub(crate) fn distinct_names(&self) -> Option<Vec<String>> {
        let names = self.names()?;
        if let Some(number) = (1..names.len()).find(|number| names[..*number].contains(&names[*number])) {
            self.error(format!("{:?} is named twice", names[number]));
        }
        Some(names)
    }

    /// Reads a list.
    pub(crate) fn items(&self) -> Option<Vec<Field<'a>>> {
        let Kind::List(items) = &self.node.kind else {
            self.error(format!("expected a list, found {}", self.node.describe()));
            return None;
        };
        let item = |(number, node): (usize, &'a Node)| Field {
            path: format!("{}[{number}]", self.path),
            line: node.line,
            node,
            errors: self.errors,
        };
        Some(items.iter().enumerate().map(item).collect())
    }

    /// Reads pairs of names: a section whose keys the user chooses, or names that stand for themselves.
    pub(crate) fn pairs(&self) -> Option<Vec<(String, String)>> {
        if !matches!(self.node.kind, Kind::Map(_)) {
            return Some(self.distinct_names()?.into_iter().map(|name| (name.clone(), name)).collect());
        }
        let pair = |(name, field): (&str, Field<'_>)| Some((name.to_owned(), field.name()?));
        let pairs: Vec<_> = self.section()?.all().map(pair).collect();
        if pairs.is_empty() {
            self.error("must name at least one");
            return None;
        }
        pairs.into_iter().collect()
    }

    /// Reads one of a few words.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Option<T> {
        let text = self.text()?;
        let chosen = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if chosen.is_none() {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            self.error(format!("{text:?} is not one of {}", words.join(", ")));
        }
        chosen
    }

    /// Reads a truth value.
    pub(crate) fn flag(&self) -> Option<bool> {
        self.choice(&[("true", true), ("false", false)])
    }

    /// Reads a number.
    pub(crate) fn number<T: FromStr + PartialOrd + fmt::Display>(&self, at_least: T) -> Option<T> {
        let text = self.text()?;
        match text.parse() {
            Ok(number) if number >= at_least => Some(number),
            _ => {
                self.error(format!("{text:?} is not a whole number of at least {at_least}"));
                None
            }
        }
    }

    /// Reads a duration such as `200ms`, `5s` or `10min`.
    pub(crate) fn duration(&self) -> Option<Duration> {
        let text = self.text()?;
        let duration = with_unit(&text, &[("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000)]);
        if duration.is_none() {
            self.error(format!("{text:?} is not a duration such as 200ms, 5s, 10min or 1h"));
        }
        duration.map(Duration::from_millis)
    }

    /// Reads a size such as `16MiB`.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let text = self.text()?;
        let bytes = with_unit(&text, &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)]);
        if bytes.is_none() {
            self.error(format!("{text:?} is not a size such as 512KiB, 16MiB or 1GiB"));
        }
        bytes
    }
}

/// Reads a whole number with one of these units behind it.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Counts the single-letter edits between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[b.len()]
}

//! A YAML document as a tree that knows where each part stands.
//!
//! Deserialising into structs would stop at the first error and lose the lines; the typed readers in
//! [`fields`](super::fields) walk this tree instead and report everything at once.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use super::fields::{ConfigError, Errors};

/// A part of the document and the line it begins in, counted from 1.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// A plain or quoted scalar. Only a plain one can mean null, a number or a truth value.
    Scalar {
        text: String,
        is_plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) value: Node,
}

impl Node {
    /// Names the node's kind for messages.
    pub(crate) fn describe(&self) -> &'static str {
        match &self.kind {
            Kind::Scalar { text, is_plain: true } if is_null(text) => "nothing",
            Kind::Scalar { .. } => "a single value",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a section",
        }
    }
}

pub(crate) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Parses one document. Syntax errors and repeated keys go to `errors`.
pub(crate) fn parse(text: &str, errors: &Errors) -> Option<Node> {
    let mut builder = Builder { events: Parser::new_from_str(text), anchors: Vec::new(), errors };
    match builder.document() {
        Ok(node) => node,
        Err(error) => {
            errors.push(ConfigError::new(
                error.marker().line(),
                "",
                format!("not valid YAML: {}", error.info()),
            ));
            None
        }
    }
}

struct Builder<'a, P> {
    events: P,
    anchors: Vec<(usize, Node)>,
    errors: &'a Errors,
}

impl<'i, P: Iterator<Item = Result<(Event<'i>, Span), ScanError>>> Builder<'_, P> {
    fn document(&mut self) -> Result<Option<Node>, ScanError> {
        let mut root = None;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart
                | Event::DocumentStart(_)
                | Event::DocumentEnd
                | Event::StreamEnd
                | Event::Nothing => {}
                _ if root.is_some() => {
                    let message = "a second document begins here; one file is one pipeline".to_owned();
                    self.errors.push(ConfigError::new(span.start.line(), "", message));
                    return Ok(root);
                }
                event => root = self.node(event, span)?,
            }
        }
        if root.is_none() {
            self.errors.push(ConfigError::new(1, "", "the file is empty".to_owned()));
        }
        Ok(root)
    }

    fn next(&mut self) -> Result<Option<(Event<'i>, Span)>, ScanError> {
        self.events.next().transpose()
    }

    fn node(&mut self, event: Event<'i>, span: Span) -> Result<Option<Node>, ScanError> {
        let line = span.start.line();
        let (anchor, kind) = match event {
            Event::Scalar(text, style, anchor, _) => {
                (anchor, Kind::Scalar { text: text.into_owned(), is_plain: style == ScalarStyle::Plain })
            }
            Event::SequenceStart(anchor, _) => (anchor, self.list()?),
            Event::MappingStart(anchor, _) => (anchor, self.map()?),
            Event::Alias(anchor) => {
                let known = self.anchors.iter().rfind(|(id, _)| *id == anchor);
                return Ok(known.map(|(_, node)| Node { line, kind: node.kind.clone() }));
            }
            _ => return Ok(None),
        };
        let node = Node { line, kind };
        if anchor > 0 {
            self.anchors.push((anchor, node.clone()));
        }
        Ok(Some(node))
    }

    fn list(&mut self) -> Result<Kind, ScanError> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            items.extend(self.node(event, span)?);
        }
        Ok(Kind::List(items))
    }

    fn map(&mut self) -> Result<Kind, ScanError> {
        let mut entries: Vec<Entry> = Vec::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::MappingEnd) {
                break;
            }
            let line = span.start.line();
            let key = self.node(event, span)?;
            let value = match self.next()? {
                Some((event, span)) => self.node(event, span)?,
                None => None,
            };
            let (Some(Node { kind: Kind::Scalar { text: key, .. }, .. }), Some(value)) = (key, value) else {
                self.errors.push(ConfigError::new(line, "", "a key must be a single value".to_owned()));
                continue;
            };
            if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                let message = format!("set twice; the first time in line {}", first.line);
                self.errors.push(ConfigError::new(line, &key, message));
                continue;
            }
            entries.push(Entry { key, line, value });
        }
        Ok(Kind::Map(entries))
    }
}

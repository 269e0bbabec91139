//! What is logged as an error by the thread of a test.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

thread_local! {
    static ERRORS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Collects errors with their fields: for the whole process, because who subscribes for one thread alone competes with what others
/// find out about the same line.
struct Journal;

/// Returns what this thread has logged since it was asked last. The first time nothing is known.
pub(crate) fn take_errors() -> Vec<String> {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Journal).unwrap());
    ERRORS.take()
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Journal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        ERRORS.with_borrow_mut(|errors| errors.push(line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

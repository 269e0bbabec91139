//! What a failure means, told by its SQLSTATE.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use levada_core::{ErrorClass, SinkError};

/// What a failed statement or connection comes to.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) class: ErrorClass,
    /// The SQLSTATE, where the server gave one.
    pub(crate) code: Option<Box<str>>,
    pub(crate) cause: Box<ServerError>,
}

impl Failure {
    /// Makes it an error that says what was tried.
    pub(crate) fn during(self, doing: impl Into<String>) -> SinkError {
        SinkError::new(self.class, doing).caused_by(*self.cause)
    }

    /// Makes the failure of a server that takes a connection and then says nothing.
    pub(crate) fn silence(within: Duration) -> Self {
        let message = format!("the server did not answer within {within:?}");
        Self { class: ErrorClass::Reconnect, code: None, cause: Box::new(ServerError::without_code(message)) }
    }

    pub(crate) fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let code = error.code().map(|code| Box::from(code.code()));
        let class = match &code {
            Some(code) => class_of(code),
            // Without a SQLSTATE it is the connection that failed, or our own use of the driver.
            None if error.is_closed() || is_io(&error) => ErrorClass::Reconnect,
            None => ErrorClass::Fatal,
        };
        Self { class, code, cause: Box::new(ServerError::of(&error)) }
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    // The driver wraps failures to connect and to talk as I/O errors; a timeout while connecting is one, too.
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<std::io::Error>() {
            return true;
        }
        cause = error.source();
    }
    error.to_string().starts_with("error connecting to server") || error.to_string().contains("timeout")
}

/// Makes the error of something that only a human can mend.
pub(crate) fn fatal(message: impl Into<String>) -> SinkError {
    SinkError::new(ErrorClass::Fatal, message)
}

/// Classes a SQLSTATE. See appendix A of the Postgres manual.
pub(crate) fn class_of(code: &str) -> ErrorClass {
    match code {
        // Deadlock, serialization failure, lock timeout, cancelled statement: the same flush may pass.
        "40001" | "40P01" | "55P03" | "57014" => ErrorClass::Retry,
        // Shut down, crashed, starting, idle session ended, idle transaction ended; read-only: a standby, or about
        // to become one.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25006" => ErrorClass::Reconnect,
        // Too large for a page or an index.
        "54000" => ErrorClass::BadRecord,
        _ => match code.get(..2) {
            // Connection; resources: disk full, out of memory, too many connections.
            Some("08" | "53") => ErrorClass::Reconnect,
            // Data, integrity, a view's check option.
            Some("22" | "23" | "44") => ErrorClass::BadRecord,
            // Raised by a trigger, or failed inside of one.
            Some("P0") => ErrorClass::BadRecord,
            Some(class) if is_made_up(class) => ErrorClass::BadRecord,
            _ => ErrorClass::Fatal,
        },
    }
}

/// Tells whether a class is neither the standard's nor the server's: only a function of the user's raises it.
fn is_made_up(class: &str) -> bool {
    // The standard keeps 0 to 4 and A to H for itself.
    let is_standard = class.starts_with(|first: char| matches!(first, '0'..='4' | 'A'..='H'));
    !is_standard && !matches!(class, "53" | "54" | "55" | "57" | "58" | "72" | "P0" | "XX")
}

/// An error of the server or the connection, reduced to what cannot hold a value of a row.
#[derive(Debug)]
pub(crate) struct ServerError {
    severity: Option<String>,
    pub(crate) code: Option<String>,
    message: Option<String>,
    table: Option<String>,
    pub(crate) column: Option<String>,
    pub(crate) constraint: Option<String>,
}

impl ServerError {
    fn of(error: &tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            let message = match error.source() {
                Some(cause) => format!("{error}: {cause}"),
                None => error.to_string(),
            };
            return Self::without_code(message);
        };
        let code = db.code().code();
        Self {
            severity: Some(db.severity().to_owned()),
            code: Some(code.to_owned()),
            message: (has_safe_message(code) && !is_raised(db)).then(|| db.message().to_owned()),
            table: db.table().map(str::to_owned),
            column: db.column().map(str::to_owned),
            constraint: db.constraint().map(str::to_owned),
        }
    }

    pub(crate) fn without_code(message: String) -> Self {
        Self {
            severity: None,
            code: None,
            message: Some(message),
            table: None,
            column: None,
            constraint: None,
        }
    }

    /// Tells constraint and column, whichever the server named.
    pub(crate) fn place(&self) -> String {
        let mut place = String::new();
        for (kind, name) in [("constraint", &self.constraint), ("column", &self.column)] {
            if let Some(name) = name {
                place.push_str(&format!(", {kind} {name:?}"));
            }
        }
        place
    }
}

// A function may raise any SQLSTATE with any text. The server's own errors have no context, or that of a row lock
// ("while updating tuple …").
fn is_raised(error: &tokio_postgres::error::DbError) -> bool {
    error.where_().is_some_and(|context| !context.starts_with("while "))
}

// Messages of these classes speak of names, privileges and resources. Those about data quote it, and a trigger may
// say anything. Detail, hint and context are never shown.
fn has_safe_message(code: &str) -> bool {
    matches!(code.get(..2), Some("08" | "25" | "28" | "3D" | "3F" | "40" | "42" | "53" | "55" | "57" | "58"))
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.severity, &self.code, &self.message) {
            (Some(severity), Some(code), Some(message)) => write!(f, "{severity} {code}: {message}"),
            (Some(severity), Some(code), None) => write!(f, "{severity} {code}"),
            (_, _, Some(message)) => f.write_str(message),
            _ => f.write_str("the server failed"),
        }?;
        if let Some(table) = &self.table {
            write!(f, ", table {table:?}")?;
        }
        f.write_str(&self.place())
    }
}

impl Error for ServerError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// [PGS-17] [PGS-18] which SQLSTATE is which; that each is acted upon is proved against a server.
    #[test]
    fn an_outage_is_never_a_bad_record() {
        for code in ["40001", "40P01", "55P03", "57014"] {
            assert_eq!(class_of(code), ErrorClass::Retry, "{code}");
        }
        for code in [
            "08006", "08P01", "57P01", "57P02", "57P03", "57P05", "25P03", "53100", "53200", "53300", "25006",
        ] {
            assert_eq!(class_of(code), ErrorClass::Reconnect, "{code}");
        }
        for code in [
            "22003", "22P02", "23502", "23505", "23514", "44000", "54000", "P0001", "P0002", "UE001", "99999",
        ] {
            assert_eq!(class_of(code), ErrorClass::BadRecord, "{code}");
        }
        for code in ["42501", "42P01", "3D000", "28P01", "0A000", "XX000", ""] {
            assert_eq!(class_of(code), ErrorClass::Fatal, "{code}");
        }
    }
}

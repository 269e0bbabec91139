//! The open transactions of a partition.

use super::ReadError;
use super::session::Session;

const TOOL: &str = "org.apache.kafka.tools.TransactionsCommand";

/// The oldest open transaction of a partition: nobody with `read_committed` gets past its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenTransaction {
    pub(super) first_offset: i64,
    pub(super) producer_id: i64,
}

/// Asks for the oldest open transaction of a partition, if there is any.
pub(super) fn oldest_open(
    session: &Session<'_>,
    partition: i32,
) -> Result<Option<OpenTransaction>, ReadError> {
    let partition = partition.to_string();
    let arguments = ["describe-producers", "--topic", session.topic, "--partition", &partition];
    let text = session.text(TOOL, session.run(TOOL, &arguments)?)?;
    parse(&text).ok_or_else(|| session.answer(TOOL, "not a table of producers", &text))
}

/// Reads the table; the outer option tells whether it is understood.
fn parse(text: &str) -> Option<Option<OpenTransaction>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next()?.split_whitespace().collect();
    let column = |name| header.iter().position(|title| *title == name);
    let (producer, start) = (column("ProducerId")?, column("CurrentTransactionStartOffset")?);
    let mut oldest: Option<OpenTransaction> = None;
    for line in lines {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.len() != header.len() {
            return None;
        }
        if fields[start] == "None" {
            continue;
        }
        let open = OpenTransaction {
            first_offset: fields[start].parse().ok()?,
            producer_id: fields[producer].parse().ok()?,
        };
        if oldest.is_none_or(|older| open.first_offset < older.first_offset) {
            oldest = Some(open);
        }
    }
    Some(oldest)
}

#[cfg(test)]
mod tests {
    use super::{OpenTransaction, parse};

    const HEADER: &str = "ProducerId\tProducerEpoch\tLatestCoordinatorEpoch\tLastSequence\tLastTimestamp\t\
                          CurrentTransactionStartOffset\t\n";

    #[test]
    fn the_oldest_open_transaction_is_taken() {
        let table = format!("{HEADER}0 \t0\t-1\t1\t5\tNone\t\n7\t0\t0\t1\t5\t12 \t\n8\t0\t0\t1\t5\t4\t\n");
        assert_eq!(parse(&table), Some(Some(OpenTransaction { first_offset: 4, producer_id: 8 })));
        assert_eq!(parse(HEADER), Some(None));
    }

    #[test]
    fn another_table_is_refused() {
        for table in
            ["", "nothing\n", &format!("{HEADER}1\t2\t\n"), &format!("{HEADER}0\t0\t0\t1\t5\tsome\t\n")]
        {
            assert_eq!(parse(table), None, "{table}");
        }
    }
}

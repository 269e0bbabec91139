//! The consumer groups of a reading: how far they are, and their end.

use std::collections::BTreeMap;

use super::ReadError;
use super::session::Session;

const TOOL: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";

/// What the tool says of a group that never committed anything.
const NOT_FOUND: &str = "GroupIdNotFoundException";

/// The committed positions, by group and partition.
pub(super) type Positions = BTreeMap<(String, i32), i64>;

/// Asks for the committed positions of groups; empty when one of them does not exist yet.
pub(super) fn positions(session: &Session<'_>, groups: &[&str]) -> Result<Positions, ReadError> {
    let mut arguments = vec!["--describe", "--offsets"];
    arguments.extend(groups.iter().flat_map(|group| ["--group", *group]));
    let text = session.text(TOOL, session.run(TOOL, &arguments)?)?;
    // The tool succeeds whatever happens; it prints its error in place of all tables.
    if text.contains("Error:") {
        return if text.contains(NOT_FOUND) {
            Ok(Positions::new())
        } else {
            Err(session.answer(TOOL, "an error", text.trim_start()))
        };
    }
    parse_positions(&text, session.topic)
        .ok_or_else(|| session.answer(TOOL, "not a table of offsets", text.trim_start()))
}

fn parse_positions(text: &str, topic: &str) -> Option<Positions> {
    let mut positions = Positions::new();
    let mut header: Vec<&str> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("Consumer group '")) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.first() == Some(&"GROUP") {
            header = fields;
            continue;
        }
        let field = |name| {
            let column = header.iter().position(|title| *title == name)?;
            fields.get(column).copied()
        };
        let (group, committed) = (field("GROUP")?, field("CURRENT-OFFSET")?);
        if field("TOPIC")? != topic {
            return None;
        }
        if committed != "-" {
            let partition = field("PARTITION")?.parse().ok()?;
            positions.insert((group.to_owned(), partition), committed.parse().ok()?);
        }
    }
    Some(positions)
}

/// Deletes groups, those that were never made included.
pub(super) fn delete(session: &Session<'_>, groups: &[&str]) -> Result<(), ReadError> {
    let mut arguments = vec!["--delete"];
    arguments.extend(groups.iter().flat_map(|group| ["--group", *group]));
    let text = session.text(TOOL, session.run(TOOL, &arguments)?)?;
    if is_deleted(&text) { Ok(()) } else { Err(session.answer(TOOL, "a group stays", text.trim_start())) }
}

/// Tells from the answer whether the groups are gone.
fn is_deleted(text: &str) -> bool {
    let mut failures = text.lines().filter(|line| line.starts_with("* Group '")).peekable();
    if failures.peek().is_some() {
        return failures.all(|failure| failure.contains(NOT_FOUND));
    }
    text.contains("was successful")
}

#[cfg(test)]
mod tests {
    use super::{Positions, is_deleted, parse_positions};

    #[test]
    fn the_positions_of_several_groups_are_read() {
        let answer = "\nConsumer group 'g_1' has no active members.\n\n\
            GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID\n\
            g_1    t      1          5               6               1    -            -     -\n\
            g_1    t      0          -               6               -    -            -     -\n\n\
            Consumer group 'g_2' has no active members.\n\n\
            GROUP  TOPIC  PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  CONSUMER-ID  HOST  CLIENT-ID\n\
            g_2    t      0          6               6               0    -            -     -\n";
        let expected = Positions::from([(("g_1".to_owned(), 1), 5), (("g_2".to_owned(), 0), 6)]);
        assert_eq!(parse_positions(answer, "t"), Some(expected));
        assert_eq!(
            parse_positions("\nConsumer group 'g' has no active members.\n", "t"),
            Some(Positions::new())
        );
    }

    #[test]
    fn an_answer_of_another_shape_is_refused() {
        for answer in
            ["g t 0 5", "GROUP TOPIC PARTITION\ng t 0", "GROUP TOPIC PARTITION CURRENT-OFFSET\ng u 0 5"]
        {
            assert_eq!(parse_positions(answer, "t"), None, "{answer}");
        }
    }

    #[test]
    fn only_groups_that_never_were_may_fail_to_be_deleted() {
        assert!(is_deleted("Deletion of requested consumer groups ('g_1', 'g_2') was successful.\n"));
        let failed = |reason| {
            format!(
                "\nError: Deletion of some consumer groups failed:\n* Group 'g_2' could not be deleted due to: {reason}\n"
            )
        };
        assert!(is_deleted(&failed("org.apache.kafka.common.errors.GroupIdNotFoundException: no")));
        assert!(!is_deleted(&failed("org.apache.kafka.common.errors.GroupNotEmptyException: no")));
        assert!(!is_deleted(""));
    }
}

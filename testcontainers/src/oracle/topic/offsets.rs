//! The ends of a topic's partitions.

use std::collections::BTreeMap;

use super::ReadError;
use super::session::Session;

const TOOL: &str = "org.apache.kafka.tools.GetOffsetShell";

/// Asks for the offset after the last one of each partition: the high watermark, records of open transactions included.
pub(super) fn ends(session: &Session<'_>) -> Result<BTreeMap<i32, i64>, ReadError> {
    // The tool takes the topic for a regular expression; the dot is the only character of a name with a meaning there.
    let pattern = session.topic.replace('.', "\\.");
    let output = session.run(TOOL, &["--topic", &pattern, "--time", "latest"])?;
    // A partition without a leader is left out with a remark, and the tool succeeds.
    let remarks = String::from_utf8_lossy(&output.stderr).into_owned();
    if let Some(skipped) = remarks.lines().find(|line| line.contains("Skip getting offsets")) {
        return Err(session.answer(TOOL, "a partition was left out", skipped));
    }
    let text = session.text(TOOL, output)?;
    parse(session.topic, &text).map_err(|(reason, line)| session.answer(TOOL, reason, line))
}

fn parse<'a>(topic: &str, text: &'a str) -> Result<BTreeMap<i32, i64>, (&'static str, &'a str)> {
    let mut ends = BTreeMap::new();
    for line in text.lines() {
        let (partition, end) = parse_line(topic, line).ok_or(("not topic:partition:offset", line))?;
        ends.insert(partition, end);
    }
    let numbered = ends.keys().copied().eq((0..).take(ends.len()));
    if ends.is_empty() || !numbered { Err(("partitions are missing", text)) } else { Ok(ends) }
}

fn parse_line(topic: &str, line: &str) -> Option<(i32, i64)> {
    let (partition, end) = line.strip_prefix(topic)?.strip_prefix(':')?.split_once(':')?;
    Some((partition.parse().ok()?, end.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::parse;

    #[test]
    fn the_end_of_every_partition_is_read() {
        assert_eq!(parse("a.b", "a.b:0:2\na.b:1:0\n"), Ok(BTreeMap::from([(0, 2), (1, 0)])));
    }

    #[test]
    fn an_answer_with_a_gap_or_about_another_topic_is_refused() {
        for answer in
            ["", "a.b:1:0\n", "a.b:0:1\na.b:2:1\n", "axb:0:1\n", "a.b:0:\n", "Error occurred: nothing\n"]
        {
            assert!(parse("a.b", answer).is_err(), "{answer}");
        }
    }
}

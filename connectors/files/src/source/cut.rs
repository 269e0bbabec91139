//! Cuts bytes into lines.

use super::config::{BatchBounds, LineEnd};

/// The bounds of one line in a buffer: its content ends at `content`, and the next line begins at `next`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) start: usize,
    pub(super) content: usize,
    pub(super) next: usize,
}

/// What a buffer has to offer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Cut {
    pub(super) lines: Vec<Line>,
    /// Bytes of their contents.
    pub(super) bytes: usize,
    /// Whether the line behind them is longer than the limit.
    pub(super) is_too_long: bool,
}

/// How to cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) line_end: LineEnd,
    pub(super) max_line_bytes: usize,
    pub(super) bounds: BatchBounds,
}

impl Rules {
    /// Cuts lines from the front of a buffer, up to a batch's bounds; `is_last` when nothing follows it in the file.
    pub(super) fn cut(&self, buffer: &[u8], is_last: bool) -> Cut {
        let mut cut = Cut::default();
        let mut start = 0;
        while cut.lines.len() < self.bounds.records && cut.bytes < self.bounds.bytes {
            let Some(line) = self.line_at(buffer, start, is_last) else {
                // One byte more may be the carriage return that does not count.
                cut.is_too_long = buffer.len() - start > self.max_line_bytes + 1;
                break;
            };
            if line.content - line.start > self.max_line_bytes {
                cut.is_too_long = true;
                break;
            }
            cut.bytes += line.content - line.start;
            start = line.next;
            cut.lines.push(line);
        }
        cut
    }

    fn line_at(&self, buffer: &[u8], start: usize, is_last: bool) -> Option<Line> {
        let rest = &buffer[start..];
        let Some(length) = rest.iter().position(|&byte| byte == b'\n') else {
            let is_line = is_last && !rest.is_empty();
            return is_line.then_some(Line { start, content: buffer.len(), next: buffer.len() });
        };
        let end = start + length;
        let is_cr_lf = self.line_end == LineEnd::NewlineOrCrLf && rest[..length].ends_with(b"\r");
        Some(Line { start, content: if is_cr_lf { end - 1 } else { end }, next: end + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(line_end: LineEnd, max_line_bytes: usize, text: &str, is_last: bool) -> (Vec<&str>, bool) {
        let rules = Rules { line_end, max_line_bytes, bounds: BatchBounds { records: 10, bytes: 100 } };
        let cut = rules.cut(text.as_bytes(), is_last);
        (cut.lines.iter().map(|line| &text[line.start..line.content]).collect(), cut.is_too_long)
    }

    #[test]
    fn a_last_line_without_a_newline_is_a_record_at_the_end_of_the_file_only() {
        assert_eq!(cut(LineEnd::Newline, 9, "a\n\nb", false), (vec!["a", ""], false));
        assert_eq!(cut(LineEnd::Newline, 9, "a\n\nb", true), (vec!["a", "", "b"], false));
        assert_eq!(cut(LineEnd::Newline, 9, "a\n", true), (vec!["a"], false));
        assert_eq!(cut(LineEnd::Newline, 9, "", true), (vec![], false));
    }

    #[test]
    fn a_carriage_return_is_kept_or_stripped_as_asked() {
        assert_eq!(cut(LineEnd::Newline, 9, "a\r\nb\rc\n", true).0, ["a\r", "b\rc"]);
        assert_eq!(cut(LineEnd::NewlineOrCrLf, 9, "a\r\nb\rc\n\r\nd\r", true).0, ["a", "b\rc", "", "d\r"]);
    }

    #[test]
    fn the_limit_counts_a_lines_content_wherever_the_buffer_ends() {
        assert_eq!(cut(LineEnd::NewlineOrCrLf, 3, "abc\r\n", false), (vec!["abc"], false));
        assert_eq!(cut(LineEnd::NewlineOrCrLf, 3, "abc\r", false), (vec![], false));
        assert_eq!(cut(LineEnd::NewlineOrCrLf, 3, "abcde", false), (vec![], true));
        assert_eq!(cut(LineEnd::Newline, 3, "x\nabcd\ny\n", false), (vec!["x"], true));
        assert_eq!(cut(LineEnd::Newline, 3, "abcd", true), (vec![], true));
    }
}

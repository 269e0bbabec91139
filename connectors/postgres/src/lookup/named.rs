//! A query with named parameters, taken apart.
//!
//! `:name` is a parameter, except within strings, quoted identifiers and comments; `::` is a cast and `:=` an
//! assignment. In an array's slice a space tells a number or a name from a parameter: `a[1 : n]`.

/// A query as pieces of text with parameters between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedQuery {
    pieces: Vec<Piece>,
    /// The parameters' names in the order in which they are first used.
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Parameter(usize),
}

impl NamedQuery {
    /// Takes `sql` apart. One trailing semicolon is left out.
    pub(crate) fn parse(sql: &str) -> Self {
        let sql = sql.trim_end();
        let sql = sql.strip_suffix(';').unwrap_or(sql);
        let mut query = Self { pieces: Vec::new(), names: Vec::new() };
        let (mut at, mut text_from) = (0, 0);
        while at < sql.len() {
            let rest = &sql[at..];
            if let Some(name) = parameter(rest) {
                query.text(&sql[text_from..at]);
                query.parameter(name);
                at += 1 + name.len();
                text_from = at;
            } else {
                at += opaque(rest);
            }
        }
        query.text(&sql[text_from..]);
        query
    }

    /// Puts the text together again, each parameter as `print` writes it. A line comment at the end is closed.
    pub(crate) fn text_with(&self, print: impl Fn(usize) -> String) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Parameter(number) => text.push_str(&print(*number)),
            }
        }
        text.push('\n');
        text
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.pieces.push(Piece::Text(text.to_owned()));
        }
    }

    fn parameter(&mut self, name: &str) {
        let known = self.names.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        self.pieces.push(Piece::Parameter(number));
    }
}

/// Returns the name if `rest` starts with a parameter.
fn parameter(rest: &str) -> Option<&str> {
    let after = rest.strip_prefix(':')?;
    let is_start = |first: char| first == '_' || first.is_alphabetic();
    if !after.starts_with(is_start) {
        return None;
    }
    let end = after.find(|next: char| next != '_' && !next.is_alphanumeric()).unwrap_or(after.len());
    Some(&after[..end])
}

/// Returns how many bytes at the start of `rest` hold no parameter: a string, a quoted name, a comment, a cast, a word,
/// or one character. What is not closed reaches to the end, and the server will say so.
fn opaque(rest: &str) -> usize {
    let word = rest.find(|next: char| next != '_' && !next.is_alphanumeric()).unwrap_or(rest.len());
    if word > 0 {
        // `E'…'` has escapes; another letter before a quote changes nothing about where the string ends.
        let has_escapes = matches!(&rest[..word], "e" | "E") && rest[word..].starts_with('\'');
        return if has_escapes { word + escaped(&rest[word..]) } else { word };
    }
    if rest.starts_with("::") || rest.starts_with(":=") {
        return 2;
    }
    if rest.starts_with("--") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return comment(rest);
    }
    match rest.chars().next() {
        // A doubled quote ends one string and starts the next, which is as good.
        Some(quote @ ('\'' | '"')) => rest[1..].find(quote).map_or(rest.len(), |end| end + 2),
        Some('$') => dollar_quoted(rest).unwrap_or(1),
        Some(other) => other.len_utf8(),
        None => 0,
    }
}

fn escaped(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, next) in rest.char_indices().skip(1) {
        match next {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '\'' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Comments nest.
fn comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn dollar_quoted(rest: &str) -> Option<usize> {
    let tag_end = rest[1..].find('$')? + 2;
    let tag = &rest[..tag_end];
    let is_tag = tag[1..tag_end - 1].chars().all(|next| next == '_' || next.is_alphanumeric())
        && !tag[1..].starts_with(|first: char| first.is_ascii_digit());
    if !is_tag {
        return None;
    }
    Some(rest[tag_end..].find(tag).map_or(rest.len(), |end| tag_end + end + tag.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(sql: &str) -> (String, Vec<String>) {
        let query = NamedQuery::parse(sql);
        let text = query.text_with(|number| format!("${}", number + 1));
        (text.trim_end().to_owned(), query.names)
    }

    /// [LKP-01] a name used twice is one parameter.
    #[test]
    fn named_parameters_become_numbered_ones() {
        let (text, names) = numbered("select name from t where a = :a and (b = :b or c = :a);");
        assert_eq!(text, "select name from t where a = $1 and (b = $2 or c = $1)");
        assert_eq!(names, ["a", "b"]);
    }

    /// [LKP-01] what looks like a parameter and is none.
    #[test]
    fn strings_casts_and_comments_hold_no_parameter() {
        for sql in [
            "select ':a', 'it''s :a', E'\\':a', \":a\", x::text",
            "select $$ :a $$, $tag$ :a $$ :a $tag$",
            "select 1 -- :a",
            "select 1 /* :a /* :a */ :a */",
            "select 'ä' , f(x := 1), a[1 : 2], a[1:2]",
        ] {
            assert_eq!(numbered(sql), (sql.to_owned(), vec![]));
        }
        let (text, names) = numbered("select ä':x' || :größe::text -- :no\n, :b");
        assert_eq!(text, "select ä':x' || $1::text -- :no\n, $2");
        assert_eq!(names, ["größe", "b"]);
    }
}

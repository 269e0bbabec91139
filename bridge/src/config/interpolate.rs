//! Puts environment variables and secrets from files into texts.

use std::{env, fs};

/// Replaces `${NAME}` by an environment variable, `${NAME:-default}` likewise with a default, and `${file:PATH}` by
/// the content of a file without its last line end. `$${` stands for a literal `${`.
///
/// Errors never repeat what a variable or a file holds.
pub(crate) fn interpolate(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, after) = (&rest[..start], &rest[start + 2..]);
        if let Some(escaped) = before.strip_suffix('$') {
            out.push_str(escaped);
            out.push_str("${");
            rest = after;
            continue;
        }
        out.push_str(before);
        let end = after.find('}').ok_or("\"${\" without a closing \"}\"; write \"$${\" for a literal one")?;
        out.push_str(&resolve(&after[..end])?);
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn resolve(reference: &str) -> Result<String, String> {
    if let Some(path) = reference.strip_prefix("file:") {
        let content =
            fs::read_to_string(path).map_err(|error| format!("cannot read file {path:?}: {error}"))?;
        let content = content.strip_suffix('\n').unwrap_or(&content);
        return Ok(content.strip_suffix('\r').unwrap_or(content).to_owned());
    }
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    match (env::var(name), default) {
        (Ok(value), _) => Ok(value),
        (Err(_), Some(default)) => Ok(default.to_owned()),
        (Err(_), None) => {
            Err(format!("environment variable {name:?} is not set; \"${{{name}:-default}}\" gives a default"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_files_are_put_in() {
        let dir = tempfile::tempdir().expect("tempdir");
        let secret = dir.path().join("password");
        fs::write(&secret, "s3cret\n").expect("write");
        let text = format!("a ${{LEVADA_NOT_SET:-b}} ${{file:{}}} $${{c}}", secret.display());
        assert_eq!(interpolate(&text), Ok("a b s3cret ${c}".to_owned()));
    }

    #[test]
    fn missing_variable_is_named() {
        let error = interpolate("${LEVADA_NOT_SET}").expect_err("not set");
        assert!(error.contains("LEVADA_NOT_SET"), "{error}");
        assert!(interpolate("${LEVADA").is_err());
        assert!(interpolate("${file:/nowhere/at/all}").expect_err("no file").contains("/nowhere/at/all"));
    }
}

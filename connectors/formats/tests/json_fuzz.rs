//! [FMT-09] Documents nobody would write, held against `serde_json`: the same ones are accepted, with equal content,
//! and nothing panics.
#![cfg(feature = "json")]

use levada_core::{Slice, Value};
use levada_formats::json::{JsonDecoder, JsonLimits, JsonReason};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// The deepest nesting that `serde_json` accepts.
const SERDE_DEPTH: usize = 127;

/// No document of the tests is longer than 128 bytes or so; a shrunk failure says more than a seed in a file.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn decoder() -> JsonDecoder {
    JsonDecoder::new(JsonLimits { max_depth: SERDE_DEPTH, ..JsonLimits::default() })
}

/// Decodes `bytes` both ways and compares.
fn agree(decoder: &mut JsonDecoder, bytes: &[u8]) -> Result<(), TestCaseError> {
    let payload = Slice::owned(bytes);
    let ours = decoder.decode_value(&payload);
    let theirs = serde_json::from_slice::<serde_json::Value>(bytes);
    let shown = String::from_utf8_lossy(bytes);
    match (&ours, &theirs) {
        (Ok(our), Ok(their)) => prop_assert!(is_same(our, their), "other content: {shown}"),
        (Err(our), Err(_)) => prop_assert!(our.position <= bytes.len(), "{our}: {shown}"),
        // Where a number does not fit a double, `serde_json` gives up and we do not.
        (Ok(_), Err(their)) if their.to_string().starts_with("number out of range") => {}
        (Ok(_), Err(their)) => prop_assert!(false, "accepted, but {their}: {shown}"),
        (Err(our), Ok(_)) => prop_assert!(false, "refused, {our}: {shown}"),
    }
    let as_row = decoder.decode_row(&payload);
    match ours {
        Ok(Value::Row(row)) => prop_assert!(as_row == Ok(*row)),
        Ok(_) => {
            let is_told = as_row.is_err_and(|error| matches!(error.reason, JsonReason::NotAnObject { .. }));
            prop_assert!(is_told, "a row of no object: {shown}");
        }
        Err(our) => prop_assert_eq!(as_row, Err(our)),
    }
    Ok(())
}

fn is_same(our: &Value, their: &serde_json::Value) -> bool {
    match (our, their) {
        (Value::Null, serde_json::Value::Null) => true,
        (Value::Bool(our), serde_json::Value::Bool(their)) => our == their,
        (Value::Text(our), serde_json::Value::String(their)) => our.as_str() == their,
        (Value::Number(our), serde_json::Value::Number(_)) => {
            serde_json::from_str::<serde_json::Value>(our.as_str()).is_ok_and(|reread| reread == *their)
        }
        (Value::List(our), serde_json::Value::Array(their)) => {
            our.len() == their.len() && our.iter().zip(their).all(|(our, their)| is_same(our, their))
        }
        (Value::Row(our), serde_json::Value::Object(their)) => {
            our.shape().len() == their.len()
                && our.iter().all(|(name, our)| their.get(name).is_some_and(|their| is_same(our, their)))
        }
        _ => false,
    }
}

fn space() -> impl Strategy<Value = &'static str> {
    select(&["", "", "", " ", "\n", "\t\r "][..])
}

fn string() -> impl Strategy<Value = String> {
    let pieces = [
        "a",
        "b",
        "id",
        "name",
        "Zürich",
        "😀",
        "eight bytes or more",
        "",
        "0",
        " ",
        "/",
        "\u{7f}",
        "\u{ffff}",
        r#"\""#,
        r"\\",
        r"\/",
        r"\b",
        r"\n",
        r"\u0000",
        r"\u00E9",
        r"\uD83D\ude00",
        r"\u0061",
    ];
    vec(select(pieces.to_vec()), 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn number() -> impl Strategy<Value = String> {
    let whole = select(&["0", "1", "-0", "-7", "42", "9007199254740993", "18446744073709551616"][..]);
    let fraction = select(&["", "", ".0", ".5", ".1000000000000000000001"][..]);
    let exponent = select(&["", "", "e5", "E-3", "e+12", "e00"][..]);
    (whole, fraction, exponent).prop_map(|(whole, fraction, exponent)| format!("{whole}{fraction}{exponent}"))
}

/// A valid document.
fn document() -> impl Strategy<Value = String> {
    let word = select(&["true", "false", "null", "{}", "[ ]"][..]).prop_map(str::to_owned);
    let leaf = prop_oneof![string(), number(), word];
    leaf.prop_recursive(4, 12, 4, |inner| {
        let member = (string(), space(), inner.clone())
            .prop_map(|(name, space, value)| format!("{name}{space}:{value}"));
        let list =
            |items: Vec<String>, space| format!("[{space}{}{space}]", items.join(&format!("{space},")));
        let object =
            |items: Vec<String>, space| format!("{{{space}{}{space}}}", items.join(&format!("{space},")));
        prop_oneof![
            (vec(inner, 0..4), space()).prop_map(move |(items, space)| list(items, space)),
            (vec(member, 0..4), space()).prop_map(move |(items, space)| object(items, space)),
        ]
    })
}

/// A byte that means something to a parser, or any.
fn byte() -> impl Strategy<Value = u8> {
    let meaningful = b"{}[]:,\"\\/-+.eE019tfnu \n\t\0\x1f\x7f\x80\xbf\xc0\xc3\xe2\xed\xf0\xff".to_vec();
    prop_oneof![4 => select(meaningful), 1 => any::<u8>()]
}

#[derive(Debug, Clone)]
enum Mutation {
    Replace(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Repeat(Index, Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (any::<Index>(), byte()).prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        (any::<Index>(), byte()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        any::<Index>().prop_map(Mutation::Remove),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Mutation::Repeat(from, to)),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    let len = bytes.len();
    if len == 0 {
        return;
    }
    match mutation {
        Mutation::Replace(at, byte) => bytes[at.index(len)] = *byte,
        Mutation::Insert(at, byte) => bytes.insert(at.index(len), *byte),
        Mutation::Remove(at) => drop(bytes.remove(at.index(len))),
        Mutation::Repeat(from, to) => {
            let (from, to) = (from.index(len), to.index(len));
            let part = bytes[from.min(to)..from.max(to)].to_vec();
            bytes.splice(to..to, part);
        }
    }
}

proptest! {
    #![proptest_config(cases(60_000))]

    /// [FMT-09] Whatever the bytes.
    #[test]
    fn arbitrary_bytes_are_decoded_or_refused_like_serde_json(bytes in vec(byte(), 0..24)) {
        agree(&mut decoder(), &bytes)?;
    }

    /// [FMT-09] Tokens in any order: mostly wrong, but not at the first byte.
    #[test]
    fn arbitrary_tokens_are_decoded_or_refused_like_serde_json(
        tokens in vec(select(&[
            "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"a\":", "\\", "\\u", "d83d", "\\ude00", "-", "0", "17", ".5",
            "e", "E+3", "true", "null", "fals", " ", "é",
        ][..]), 0..12),
    ) {
        agree(&mut decoder(), tokens.concat().as_bytes())?;
    }
}

proptest! {
    #![proptest_config(cases(5_000))]

    /// [FMT-02] Valid documents are accepted, with the content that `serde_json` finds, by a decoder with a past.
    #[test]
    fn valid_documents_have_the_content_serde_json_finds(documents in vec(document(), 1..6)) {
        let mut decoder = decoder();
        for document in &documents {
            prop_assert!(decoder.decode_value(&Slice::owned(document.as_str())).is_ok(), "{}", document);
            agree(&mut decoder, document.as_bytes())?;
        }
    }

    /// [FMT-09] Every beginning of a document.
    #[test]
    fn truncation_at_every_byte_is_judged_like_serde_json(document in document()) {
        let mut decoder = decoder();
        for end in 0..document.len() {
            agree(&mut decoder, &document.as_bytes()[..end])?;
        }
    }

    /// [FMT-09] Documents with a few bytes changed, each change on top of the ones before.
    #[test]
    fn mutated_documents_are_judged_like_serde_json(document in document(), mutations in vec(mutation(), 16)) {
        let mut decoder = decoder();
        for together in 1..4 {
            for few in mutations.chunks(together) {
                let mut bytes = document.clone().into_bytes();
                for mutation in few {
                    mutate(&mut bytes, mutation);
                    agree(&mut decoder, &bytes)?;
                }
            }
        }
    }
}

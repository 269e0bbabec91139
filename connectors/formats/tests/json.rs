//! What the JSON decoder promises.
#![cfg(feature = "json")]

use std::error::Error;
use std::sync::Arc;

use levada_core::arena::Span;
use levada_core::{Arena, Row, Slice, Value};
use levada_formats::json::{JsonDecoder, JsonError, JsonLimits, JsonReason};

fn row(document: &str) -> Row {
    JsonDecoder::default().decode_row(&Slice::owned(document)).expect("a valid object")
}

fn value(document: &str) -> Value {
    JsonDecoder::default().decode_value(&Slice::owned(document)).expect("a valid document")
}

fn failure(document: impl Into<Vec<u8>>) -> JsonError {
    JsonDecoder::default().decode_value(&Slice::owned(document)).expect_err("an invalid document")
}

fn names(row: &Row) -> Vec<&str> {
    row.iter().map(|(name, _)| name).collect()
}

fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) | Value::Number(text) => text.as_str(),
        other => panic!("a {} has no text", other.class()),
    }
}

fn nested(open: &str, levels: usize, close: &str) -> String {
    open.repeat(levels) + "1" + &close.repeat(levels)
}

fn is_inside(part: &[u8], whole: &[u8]) -> bool {
    let (part, whole) = (part.as_ptr_range(), whole.as_ptr_range());
    whole.start <= part.start && part.end <= whole.end
}

/// [FMT-01] No number passes through a double or a machine integer.
#[test]
fn number_keeps_its_text() {
    let exact = [
        "0",
        "-0",
        "-0.0",
        "0.10",
        "1E400",
        "1e-400",
        "1.0e+7",
        "9007199254740993",
        "18446744073709551616",
        "-123456789012345678901234567890.123456789012345678901234567890",
    ];
    for number in exact {
        assert_eq!(value(number), Value::Number(number.into()));
        assert_eq!(row(&format!(r#"{{"n": {number} }}"#)).get("n"), Some(&Value::Number(number.into())));
    }
}

/// [FMT-01] A field that is not there is absent, one that is null is null.
#[test]
fn absent_field_stays_absent() {
    let row = row(r#"{"b": null, "a": ""}"#);
    assert_eq!(row.get("b"), Some(&Value::Null));
    assert_eq!(row.get("a"), Some(&Value::Text("".into())));
    assert_eq!(row.get("c"), None);
}

/// [FMT-01] Order and nesting are kept.
#[test]
fn fields_keep_their_order_at_every_level() {
    let row = row(r#" { "z" : [ 1 , true, [ ] , { "y":false,"x":{ } } ] ,"a":"t" } "#);
    assert_eq!(names(&row), ["z", "a"]);
    let Some(Value::List(list)) = row.get("z") else { panic!("z is a list") };
    assert_eq!(list[..3], [Value::Number("1".into()), Value::Bool(true), Value::List(vec![])]);
    let Value::Row(inner) = &list[3] else { panic!("its last element is a record") };
    assert_eq!(names(inner), ["y", "x"]);
    assert!(matches!(inner.get("x"), Some(Value::Row(empty)) if empty.shape().is_empty()));
}

/// [FMT-01] The payload's bytes are shared, not copied, and only where they are the text itself.
#[test]
fn plain_texts_and_numbers_borrow_the_payload() {
    let arena =
        Arena::new(r#"before {"plain":"Zürich","escaped":"Z\u00fcrich","n":1.50} after"#.into(), None);
    let payload = Slice::new(&arena, Span::new(7, arena.bytes().len() - 13));
    let row = JsonDecoder::default().decode_row(&payload).unwrap();
    let [Value::Text(plain), Value::Text(escaped), Value::Number(number)] = row.values() else {
        panic!("two texts and a number")
    };
    assert_eq!((plain.as_str(), escaped.as_str(), number.as_str()), ("Zürich", "Zürich", "1.50"));
    assert!(is_inside(plain.as_bytes(), arena.bytes()));
    assert!(is_inside(number.as_bytes(), arena.bytes()));
    assert!(!is_inside(escaped.as_bytes(), arena.bytes()));
}

/// [FMT-01] Every escape, and characters outside the basic plane both ways.
#[test]
fn escapes_are_resolved() {
    let decoded = value(r#""\"\\\/\b\f\n\r\t\u0041\u00e9\u0000\uD83D\uDE00😀\uffff""#);
    assert_eq!(text(&decoded), "\"\\/\u{8}\u{c}\n\r\tAé\0😀😀\u{ffff}");
}

/// [FMT-02] The last value wins, at the place of the first.
#[test]
fn last_duplicate_wins_at_the_first_place() {
    let mut decoder = JsonDecoder::default();
    let mut decode = |document: &str| decoder.decode_row(&Slice::owned(document)).unwrap();
    // The same again after a document whose shape starts alike, and after itself.
    for _ in 0..2 {
        let row = decode(r#"{"a":1,"b":2,"a":3,"\u0062":4,"c":5}"#);
        assert_eq!(names(&row), ["a", "b", "c"]);
        assert_eq!(row.values().iter().map(text).collect::<Vec<_>>(), ["3", "4", "5"]);
    }
}

/// [FMT-02] Also in objects too wide to search name by name.
#[test]
fn last_duplicate_wins_in_a_wide_object() {
    let fields = |offset: usize| (0..500).map(move |n| format!(r#""f{n}":{}"#, n + offset));
    let document = format!("{{{}}}", fields(0).chain(fields(1000)).collect::<Vec<_>>().join(","));
    let row = row(&document);
    assert_eq!(row.shape().len(), 500);
    assert!((0..500).all(|n| text(&row.values()[n]) == (n + 1000).to_string()));
    assert_eq!(names(&row)[499], "f499");
}

/// [FMT-02] Rows alike share their shape, so that a sink resolves fields once and not for each row.
#[test]
fn rows_of_the_same_names_share_one_shape() {
    let mut decoder = JsonDecoder::default();
    let mut decode = |document: &str| decoder.decode_row(&Slice::owned(document)).unwrap();
    let first = decode(r#"{"id":1,"from":{"x":1,"y":2},"to":{"y":1,"x":2}}"#);
    let others = [
        r#"{"id":1}"#,
        r#"{"id":1,"from":0}"#,
        r#"{"from":1,"id":0}"#,
        "{}",
        r#"{"id":1,"from":{},"to":[]}"#,
    ];
    let before: Vec<Row> = others.iter().map(|document| decode(document)).collect();
    let again = decode(r#"{"i\u0064":3, "from":{"x":null,"y":null}, "to":{"y":[],"x":""}}"#);
    let after: Vec<Row> = others.iter().map(|document| decode(document)).collect();

    assert!(Arc::ptr_eq(first.shape(), again.shape()));
    for (one, other) in before.iter().zip(&after) {
        assert!(Arc::ptr_eq(one.shape(), other.shape()));
    }
    for field in ["from", "to"] {
        let (Some(Value::Row(one)), Some(Value::Row(other))) = (first.get(field), again.get(field)) else {
            panic!("both are records")
        };
        assert!(Arc::ptr_eq(one.shape(), other.shape()));
    }
    assert!(!Arc::ptr_eq(before[1].shape(), before[2].shape()), "order is part of a shape");
}

/// [FMT-02] Keys may be single values as well as objects.
#[test]
fn key_may_be_any_value() {
    assert_eq!(value(r#""UA-1545""#), Value::Text("UA-1545".into()));
    assert_eq!(value(" 1545 "), Value::Number("1545".into()));
    assert_eq!(value("null"), Value::Null);
    assert_eq!(value("true"), Value::Bool(true));
    assert!(matches!(value(r#"{"id":1}"#), Value::Row(_)));
}

/// [FMT-02] A row is an object; what else there is, is told.
#[test]
fn row_of_another_value_is_refused_by_its_class() {
    let cases =
        [("null", "null"), (" [1]", "list"), ("7", "number"), (r#""x""#, "text"), ("false", "boolean")];
    for (document, found) in cases {
        let error = JsonDecoder::default().decode_row(&Slice::owned(document)).unwrap_err();
        assert_eq!(error.reason, JsonReason::NotAnObject { found }, "{document}");
    }
    let error = JsonDecoder::default().decode_row(&Slice::owned("[1,]")).unwrap_err();
    assert_eq!(error.reason, JsonReason::Expected { expected: "a value" }, "what is no JSON is that first");
}

/// [FMT-02] Depth is limited to the level.
#[test]
fn nesting_to_the_limit_is_accepted_and_not_beyond() {
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let mut decoder = JsonDecoder::new(JsonLimits { max_depth: 5, ..JsonLimits::default() });
        assert!(decoder.decode_value(&Slice::owned(nested(open, 5, close))).is_ok());
        let error = decoder.decode_value(&Slice::owned(nested(open, 6, close))).unwrap_err();
        assert_eq!(error, failure_at(5 * open.len(), JsonReason::TooDeep { limit: 5 }));
        assert!(failure(nested(open, 129, close)).reason == JsonReason::TooDeep { limit: 128 });
    }
    // Breadth is no depth.
    assert!(
        matches!(value(&format!("[{}[]]", "[],{\"a\":[]},".repeat(500))), Value::List(list) if list.len() == 1001)
    );
}

fn failure_at(position: usize, reason: JsonReason) -> JsonError {
    let mut error = failure("");
    (error.position, error.reason) = (position, reason);
    error
}

/// [FMT-02] [FMT-09] Size is limited to the byte.
#[test]
fn document_over_the_size_limit_is_refused() {
    let mut decoder = JsonDecoder::new(JsonLimits { max_bytes: 10, ..JsonLimits::default() });
    assert!(decoder.decode_row(&Slice::owned(r#"{"a":"12"}"#)).is_ok());
    let error = decoder.decode_row(&Slice::owned(r#"{"a":"123"}"#)).unwrap_err();
    assert_eq!(error.reason, JsonReason::TooLarge { bytes: 11, limit: 10 });
    assert_eq!(JsonLimits::default(), JsonLimits { max_bytes: 64 * 1024 * 1024, max_depth: 128 });
}

/// [FMT-09] An error, not a stack overflow.
#[test]
fn thousand_deep_nesting_is_refused() {
    for open in ["[", r#"{"a":"#, r#"[{"a":"#] {
        for levels in [1_000, 1_000_000] {
            assert!(matches!(failure(open.repeat(levels)).reason, JsonReason::TooDeep { limit: 128 }));
        }
    }
}

/// [FMT-09] No setting makes nesting dangerous: not to decode, and not to walk through and drop what was decoded.
#[test]
fn deepest_allowed_nesting_fits_a_thread_of_two_mebibytes() {
    let walk = || {
        let mut decoder = JsonDecoder::new(JsonLimits { max_depth: usize::MAX, ..JsonLimits::default() });
        let limit = JsonLimits::DEEPEST;
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let payload = Slice::owned(nested(open, limit, close));
            let decoded = decoder.decode_value(&payload).unwrap();
            assert!(decoded.clone() == decoded);
            assert!(!format!("{decoded:?}").is_empty());
            let error = decoder.decode_value(&Slice::owned(nested(open, limit + 1, close))).unwrap_err();
            assert_eq!(error.reason, JsonReason::TooDeep { limit });
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(walk).unwrap().join().unwrap();
}

/// [FMT-09] The position is that of the first byte that is wrong.
#[test]
fn invalid_utf8_is_refused_with_its_offset() {
    let cases: [(&[u8], usize); 6] = [
        (b"{\"a\":\"ok\xffno\"}", 8),
        (b"{\"a\":\"\\n\xc3(\"}", 8),
        (b"{\"a\xe2\x82\":1}", 3),
        (b"{\"\\t\xed\xa0\x80\":1}", 4),
        (b"\xff", 0),
        (b"[1] \xc0\x80", 4),
    ];
    for (document, position) in cases {
        assert_eq!(failure(document), failure_at(position, JsonReason::InvalidUtf8));
    }
}

/// [FMT-09] A name is checked in full also after rows that had a similar one.
#[test]
fn invalid_utf8_in_a_name_is_refused_whatever_came_before() {
    let mut decoder = JsonDecoder::default();
    decoder.decode_row(&Slice::owned(r#"{"a":1}"#)).unwrap();
    let error = decoder.decode_row(&Slice::owned(*b"{\"a\xff\":1}")).unwrap_err();
    assert_eq!(error, failure_at(3, JsonReason::InvalidUtf8));
}

/// [FMT-09] Half a pair is no character, so it is not replaced by one.
#[test]
fn lone_surrogate_is_refused() {
    for escapes in
        [r"\ud800", r"\udc00", r"\ud83dx", r"\ud83d\n", r"\ud83d\u0041", r"\ud83d\ud83d", r"\ude00\ud83d"]
    {
        let lone = JsonReason::LoneSurrogate;
        assert_eq!(failure(format!("[\"ab{escapes}\"]")), failure_at(4, lone), "{escapes}");
        assert_eq!(failure(format!("{{\"ab{escapes}\":1}}")), failure_at(4, lone), "{escapes}");
    }
}

/// [FMT-09] Each kind of mistake has its reason, at its byte.
#[test]
fn mistakes_are_told_with_place_and_reason() {
    use JsonReason::{ControlCharacter, InvalidEscape, TrailingBytes, UnexpectedEnd};
    let expected = |expected| JsonReason::Expected { expected };
    let cases = [
        ("", 0, UnexpectedEnd),
        (" \n\t\r", 4, UnexpectedEnd),
        ("\u{feff}{}", 0, expected("a value")),
        ("{} {}", 3, TrailingBytes),
        ("1 2", 2, TrailingBytes),
        ("01", 1, TrailingBytes),
        ("{\"a\":1,}", 7, expected("a field's name in quotes")),
        ("{a:1}", 1, expected("a field's name in quotes")),
        ("{\"a\" 1}", 5, expected("a colon")),
        ("{\"a\":1 \"b\":2}", 7, expected("a comma or the end of the object")),
        ("[1 2]", 3, expected("a comma or the end of the list")),
        ("[1,]", 3, expected("a value")),
        ("[1}", 2, expected("a comma or the end of the list")),
        ("nul", 3, UnexpectedEnd),
        ("trUe", 2, expected("a value")),
        ("NaN", 0, expected("a value")),
        ("-", 1, UnexpectedEnd),
        ("-x", 1, expected("a digit")),
        (".5", 0, expected("a value")),
        ("+1", 0, expected("a value")),
        ("1.e5", 2, expected("a digit")),
        ("[1e+]", 4, expected("a digit")),
        ("\"a\nb\"", 2, ControlCharacter),
        ("\"12345678901\u{1}\"", 12, ControlCharacter),
        ("\"a\\x\"", 2, InvalidEscape),
        ("\"\\u12g4\"", 1, InvalidEscape),
        ("\"\\u+123\"", 1, InvalidEscape),
        ("\"\\u12\"", 1, InvalidEscape),
        ("\"a\\\"", 4, UnexpectedEnd),
        ("\"a\\", 3, UnexpectedEnd),
        ("'a'", 0, expected("a value")),
    ];
    for (document, position, reason) in cases {
        assert_eq!(failure(document), failure_at(position, reason), "{document:?}");
    }
}

/// [FMT-09] A document cut off anywhere is incomplete, never another document.
#[test]
fn truncated_document_is_refused_at_every_byte() {
    let document = r#"{"id":1.5e+10,"ü":"a\n\ud83d\ude00b","l":[true,false,null,{}],"o":{"k":[-0]}}"#;
    assert_eq!(row(document).shape().len(), 4);
    for end in 0..document.len() {
        failure(&document.as_bytes()[..end]);
    }
}

/// [FMT-09] Row values never reach a log through an error.
#[test]
fn error_repeats_nothing_of_the_payload() {
    let secret = "hunter2";
    let broken = [
        format!(r#"{{"{secret}":"{secret}\q"}}"#),
        format!(r#"{{"{secret}":{secret}}}"#),
        format!(r#"{{"{secret}":1{secret}}}"#),
        format!(r#"{{"{secret}" "{secret}"}}"#),
        format!(r#""{secret}" {secret}"#),
        format!(r#"["{secret}"#),
        format!("{secret}\u{1}"),
    ];
    for document in broken {
        let error = failure(document);
        assert!(!format!("{error} {error:?}").contains(secret));
        assert!(error.source().is_none());
    }
}

/// [FMT-09] One bad record does not spoil the next.
#[test]
fn failed_document_leaves_no_trace() {
    let mut decoder = JsonDecoder::default();
    let good = Slice::owned(r#"{"a":1,"b":{"c":2}}"#);
    let before = decoder.decode_row(&good).unwrap();
    for bad in [r#"{"a":1,"b":{"x":"#, r#"{"b":{"c":2},"#, r#"{"a":[{"a":1"#] {
        decoder.decode_row(&Slice::owned(bad)).unwrap_err();
        let after = decoder.decode_row(&good).unwrap();
        assert_eq!(after, before);
        assert!(Arc::ptr_eq(after.shape(), before.shape()));
    }
}

/// [FMT-09] Names that differ from row to row do not stay in memory: the rows are right, their shapes forgotten.
#[test]
fn ever_new_names_are_decoded_and_forgotten() {
    let mut decoder = JsonDecoder::default();
    let mut last: Option<Row> = None;
    for n in 0..2_000 {
        let row = decoder.decode_row(&Slice::owned(format!(r#"{{"n{n}":{n}}}"#))).unwrap();
        assert_eq!(row.get(&format!("n{n}")).map(text), Some(n.to_string().as_str()));
        last = Some(row);
    }
    let kept = last.as_ref().map(Row::shape).unwrap();
    assert_eq!(Arc::strong_count(kept), 3, "held by the row, as a known shape, and as the prediction");
}

/// A decoder moves into the task that uses it.
#[test]
fn decoder_and_error_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    crosses::<JsonDecoder>();
    crosses::<JsonError>();
}

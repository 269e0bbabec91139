//! Exact numbers: from the server's base-10000 form into decimal text.

use levada_core::Value;

use super::Malformed;

const NEGATIVE: u16 = 0x4000;

/// Reads a `numeric`. What is no number comes as the server's literal for it.
pub(super) fn decode(bytes: &[u8]) -> Result<Value, Malformed> {
    let (header, groups) = bytes.split_first_chunk::<8>().ok_or(Malformed)?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (count, weight, sign, scale) = (word(0), i32::from(word(2) as i16), word(4), usize::from(word(6)));
    match sign {
        0 | NEGATIVE => {}
        0xc000 => return Ok(Value::Text("NaN".into())),
        0xd000 => return Ok(Value::Text("Infinity".into())),
        0xf000 => return Ok(Value::Text("-Infinity".into())),
        _ => return Err(Malformed),
    }
    if groups.len() != usize::from(count) * 2 {
        return Err(Malformed);
    }
    let group = |power: i32| {
        let place = usize::try_from(weight - power).ok().map(|place| place * 2);
        let pair = place.and_then(|place| groups.get(place..place + 2));
        pair.map_or(0, |pair| u16::from_be_bytes([pair[0], pair[1]]))
    };
    if groups.chunks(2).any(|pair| u16::from_be_bytes([pair[0], pair[1]]) > 9999) {
        return Err(Malformed);
    }
    let mut text = String::new();
    if sign == NEGATIVE {
        text.push('-');
    }
    text.push_str(&group(weight.max(0)).to_string());
    for power in (0..weight).rev() {
        text.push_str(&format!("{:04}", group(power)));
    }
    if scale > 0 {
        text.push('.');
        let shown = text.len() + scale;
        let mut power = -1;
        while text.len() < shown {
            text.push_str(&format!("{:04}", group(power)));
            power -= 1;
        }
        text.truncate(shown);
    }
    Ok(Value::Number(text.into()))
}

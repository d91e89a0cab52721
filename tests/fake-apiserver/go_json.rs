//! JSON as Go writes it: fit for HTML, with six bytes for each `<`, `>` and `&` (`encoding/json`, `SetEscapeHTML`).

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

struct ForHtml;

/// The text of an API object or a part of one.
pub fn to_vec(value: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut text, ForHtml));
    written.expect("an API object has text keys alone, and memory takes it");
    text
}

// === impl ForHtml ===

impl Formatter for ForHtml {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(&first) = rest.as_bytes().first() {
            let escaped = escape(first);
            // Runs at once: this is built without optimization, and tests write hundreds of MB.
            let run = rest.bytes().take_while(|byte| escape(*byte) == escaped && (escaped.is_none() || *byte == first));
            let (same, other) = rest.split_at(run.count());
            match escaped {
                Some(escaped) => writer.write_all(escaped.repeat(same.len()).as_bytes())?,
                None => writer.write_all(same.as_bytes())?,
            }
            rest = other;
        }
        Ok(())
    }
}

fn escape(byte: u8) -> Option<&'static str> {
    match byte {
        b'<' => Some("\\u003c"),
        b'>' => Some("\\u003e"),
        b'&' => Some("\\u0026"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn text_is_fit_for_html_and_means_the_same() {
        let value = json!({ "a<b": ["<<", "é>&\"\n", "", "x&&"] });
        let text = String::from_utf8(to_vec(&value)).unwrap();
        assert_eq!(text, r#"{"a\u003cb":["\u003c\u003c","é\u003e\u0026\"\n","","x\u0026\u0026"]}"#);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}

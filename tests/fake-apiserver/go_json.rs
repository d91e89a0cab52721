//! JSON as Go writes it: fit for HTML, with six bytes for each `<`, `>` and `&` (`encoding/json`, `SetEscapeHTML`).

/// Bytes that are looked at together: this is built without optimization, and tests write hundreds of MB of one byte.
const BLOCK: usize = 4096;

/// JSON made fit for HTML: these three are nowhere but in its strings.
pub fn escape_html(json: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(json.len());
    for block in json.as_bytes().chunks(BLOCK) {
        if block[1..] == block[..block.len() - 1] {
            text.extend(escape(&block[0]).repeat(block.len()));
        } else {
            for byte in block {
                text.extend_from_slice(escape(byte));
            }
        }
    }
    text
}

fn escape(byte: &u8) -> &[u8] {
    match byte {
        b'<' => b"\\u003c",
        b'>' => b"\\u003e",
        b'&' => b"\\u0026",
        _ => std::slice::from_ref(byte),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn text_is_fit_for_html_and_means_the_same() {
        let value = json!({ "a<b": ["<<", "é>&\"\n", "", "x&&"] });
        let text = String::from_utf8(escape_html(&value.to_string())).unwrap();
        assert_eq!(text, r#"{"a\u003cb":["\u003c\u003c","é\u003e\u0026\"\n","","x\u0026\u0026"]}"#);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        for length in [BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1] {
            assert_eq!(escape_html(&"<".repeat(length)), "\\u003c".repeat(length).into_bytes());
        }
    }
}

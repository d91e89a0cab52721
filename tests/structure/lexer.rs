//! Splits Rust source into code, comments and strings, without a parser: what the tests here ask for needs no more.

use std::ops::Range;

/// One comment or string literal, where it starts and what it says.
pub(crate) struct Text {
    /// Offset of its first byte in the file.
    pub(crate) at: usize,
    /// Its content, delimiters included.
    pub(crate) text: String,
}

/// A source file, taken apart.
pub(crate) struct Source {
    /// The file with comments, strings and character literals replaced by spaces, byte for byte.
    pub(crate) code: String,
    /// Line comments, one each, and block comments.
    pub(crate) comments: Vec<Text>,
    /// String literals.
    pub(crate) strings: Vec<Text>,
}

impl Source {
    /// Takes a whole file apart.
    pub(crate) fn parse(file: &str) -> Self {
        let mut lexer = Lexer { bytes: file.as_bytes(), at: 0, code: file.as_bytes().to_vec() };
        let (mut comments, mut strings) = (Vec::new(), Vec::new());
        while lexer.at < lexer.bytes.len() {
            let start = lexer.at;
            match lexer.token() {
                Token::Code => continue,
                Token::Comment => comments.push(Text { at: start, text: file[start..lexer.at].to_owned() }),
                Token::String => strings.push(Text { at: start, text: file[start..lexer.at].to_owned() }),
                Token::Char => {}
            }
            lexer.blank(start);
        }
        Self { code: String::from_utf8_lossy(&lexer.code).into_owned(), comments, strings }
    }

    /// Leaves out every item under `#[cfg(test)]`, with the comments and strings in it.
    pub(crate) fn production(file: &str) -> Self {
        let mut source = Self::parse(file);
        let tests = test_items(&source.code);
        let in_tests = |text: &Text| tests.iter().any(|range| range.contains(&text.at));
        source.comments.retain(|text| !in_tests(text));
        source.strings.retain(|text| !in_tests(text));
        let mut code = source.code.into_bytes();
        for range in &tests {
            blank(&mut code[range.clone()]);
        }
        source.code = String::from_utf8_lossy(&code).into_owned();
        source
    }

    /// The number of the line that holds this offset.
    pub(crate) fn line(&self, at: usize) -> usize {
        1 + self.code[..at].matches('\n').count()
    }
}

enum Token {
    Code,
    Comment,
    String,
    Char,
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    code: Vec<u8>,
}

impl Lexer<'_> {
    fn token(&mut self) -> Token {
        let rest = &self.bytes[self.at..];
        let (length, token) = if rest.starts_with(b"//") {
            (position(rest, b"\n").unwrap_or(rest.len()), Token::Comment)
        } else if rest.starts_with(b"/*") {
            (block_comment(rest), Token::Comment)
        } else if let Some(length) = string(rest) {
            (length, Token::String)
        } else if let Some(length) = character(rest) {
            (length, Token::Char)
        } else {
            (word(rest).max(1), Token::Code)
        };
        self.at += length;
        token
    }

    fn blank(&mut self, start: usize) {
        blank(&mut self.code[start..self.at]);
    }
}

/// Makes spaces of everything but line ends.
fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn word(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count()
}

fn block_comment(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        match &bytes[at..bytes.len().min(at + 2)] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

/// The length of the string literal that starts here, if one does.
fn string(bytes: &[u8]) -> Option<usize> {
    let prefix = word(bytes);
    if !matches!(&bytes[..prefix], b"" | b"b" | b"c" | b"r" | b"br" | b"cr") {
        return None;
    }
    let rest = &bytes[prefix..];
    if bytes[..prefix].ends_with(b"r") {
        let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
        if rest.get(hashes) != Some(&b'"') {
            return None;
        }
        let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
        let body = prefix + hashes + 1;
        return Some(body + position(&bytes[body..], &end).map_or(bytes.len() - body, |at| at + end.len()));
    }
    if rest.first() != Some(&b'"') {
        return None;
    }
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    Some(prefix + at + 1)
}

/// The length of the character literal that starts here; a lifetime isn't one.
fn character(bytes: &[u8]) -> Option<usize> {
    let prefix = usize::from(bytes.starts_with(b"b'"));
    let rest = &bytes[prefix..];
    if rest.first() != Some(&b'\'') {
        return None;
    }
    if rest.get(1) == Some(&b'\\') {
        return position(&rest[3..], b"'").map(|end| prefix + end + 4);
    }
    let width = match rest.get(1)? {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(prefix + width + 2)
}

/// The items that exist in tests alone, each from its attribute to its end.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let attribute = regex_lite::Regex::new(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]|#\[(?:tokio::)?test[\](]").unwrap();
    let mut items: Vec<Range<usize>> = Vec::new();
    for found in attribute.find_iter(code) {
        if items.last().is_none_or(|last| last.end <= found.start()) {
            items.push(found.start()..item_end(code.as_bytes(), found.start()));
        }
    }
    items
}

/// Where the item ends whose first attribute starts here.
fn item_end(code: &[u8], start: usize) -> usize {
    let mut at = start;
    while code.get(at) == Some(&b'#') {
        at = closing(code, at + 1);
        at += code[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }
    let head = String::from_utf8_lossy(&code[at..code.len().min(at + 40)]).into_owned();
    let words: Vec<_> =
        head.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let statement = words.iter().take(3).any(|word| matches!(*word, "use" | "static" | "let" | "type"));
    let item = words.iter().take(4).any(|word| {
        matches!(*word, "fn" | "mod" | "impl" | "struct" | "enum" | "trait" | "unsafe" | "macro_rules" | "const")
    });
    while at < code.len() {
        match code[at] {
            b';' => return at + 1,
            b',' if !item && !statement => return at + 1,
            b'(' | b'[' => at = closing(code, at),
            b'{' if statement => at = closing(code, at),
            b'{' => return closing(code, at),
            b'}' | b')' | b']' => return at,
            _ => at += 1,
        }
    }
    at
}

/// The offset behind the bracket that closes the one here.
pub(crate) fn closing(code: &[u8], open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

#[test]
fn comments_strings_and_characters_are_not_code() {
    let source = Source::parse(
        "let a: &'static str = r#\"x\"y\"#; // of b\nlet c = '\\''; let d = \"\\\"e\"; /* f /* g */ */ h('\"')",
    );
    let words: Vec<_> = source.code.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    assert_eq!(words, ["let", "a", "static", "str", "let", "c", "let", "d", "h"]);
    assert_eq!(
        source.comments.iter().map(|text| text.text.as_str()).collect::<Vec<_>>(),
        ["// of b", "/* f /* g */ */"]
    );
    assert_eq!(source.strings.iter().map(|text| text.text.as_str()).collect::<Vec<_>>(), ["r#\"x\"y\"#", "\"\\\"e\""]);
}

#[test]
fn items_under_cfg_test_are_left_out() {
    let file = "#[cfg(test)]\nuse crate::{a, b};\nuse crate::c;\n#[cfg(test)]\n#[allow(x)]\nmod tests { fn f() { crate::d() } }\n\
                #[cfg(not(test))]\nuse crate::e;\n#[cfg(all(test, unix))]\npub(crate) fn g(x: [u8; 2]) { crate::h() }\nuse crate::i;";
    let code = Source::production(file).code;
    let kept: Vec<_> = code.match_indices("crate::").map(|(at, _)| &code[at + 7..at + 8]).collect();
    assert_eq!(kept, ["c", "e", "i"]);
}

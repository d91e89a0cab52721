//! Texts for a terminal.

/// As wide as lines get; [`clip`] needs two columns more.
pub const COLUMNS: usize = 98;

/// Breaks a line between words, so that no part is wider than [`COLUMNS`] unless a word is; all parts but the first are
/// indented.
pub fn wrap(line: &str, indent: usize) -> String {
    let mut text = String::new();
    let mut column = 0;
    for (at, word) in line.split(' ').enumerate() {
        let width = word.chars().count();
        if at > 0 && column + 1 + width > COLUMNS {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else if at > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text
}

/// The beginning of a wrapped text: at most `lines` of it.
pub fn clip(text: String, lines: usize) -> String {
    match text.match_indices('\n').nth(lines - 1) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_wrap_at_words_and_are_cut() {
        let word = "x".repeat(30);
        let line = format!("  a {}", [&*word; 4].join(" "));
        let wrapped = wrap(&line, 4);
        assert_eq!(wrapped, format!("  a {word} {word} {word}\n    {word}"));
        assert_eq!(clip(wrapped.clone(), 1), format!("  a {word} {word} {word} …"));
        assert_eq!(clip(wrapped.clone(), 2), wrapped);
        assert_eq!(wrap(&"x".repeat(120), 4), "x".repeat(120), "a word stays whole");
    }
}

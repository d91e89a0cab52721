//! Texts for a terminal: columns as kubectl's, and nothing that steers the terminal.

use std::borrow::{Borrow, Cow};

use divvy_api::ContainerKind;

/// Between two columns, as in `kubectl get`.
const GAP: usize = 3;

/// Columns beside those that all tables of GPUs have.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    /// Those of `-o wide`.
    pub(crate) wide: bool,
    /// Those of host memory, where a node oversubscribes memory.
    pub(crate) has_host: bool,
}

/// A text with its control characters and what turns the direction of writing spelled out: names and messages come from
/// every user who may create a pod.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let steers = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let spelled = |c: char| if steers(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(spelled).collect())
}

/// Cells of a line of a table, each with its column's head.
pub(crate) type Row = Vec<(&'static str, String)>;

/// A table with left-aligned columns. Each row is its cells with their columns' heads, the same in all; an empty cell
/// reads `<none>`.
pub(crate) fn table(rows: Vec<Vec<(&str, String)>>, with_heads: bool) -> String {
    let heads = rows.first().filter(|_| with_heads).map(|row| row.iter().map(|(head, _)| (*head).to_owned()).collect());
    let cell =
        |(_, cell): (&str, String)| if cell.is_empty() { "<none>".to_owned() } else { plain(&cell).into_owned() };
    let rows = rows.into_iter().map(|row| row.into_iter().map(cell).collect());
    let lines: Vec<Vec<String>> = heads.into_iter().chain(rows).collect();
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0) + GAP;
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let aligned = |line: &Vec<String>| {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.concat().trim_end())
    };
    lines.iter().map(aligned).collect()
}

/// Shortest abbreviation of a card's UUID, `GPU-1d97b7c2`; more is shown where that isn't unique.
const SHORT: usize = 12;

/// How many characters tell these UUIDs apart.
pub(crate) fn distinct_length(mut uuids: Vec<&str>) -> usize {
    let common = |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    uuids.sort_unstable();
    uuids.dedup();
    uuids.windows(2).map(|pair| common(pair[0], pair[1]) + 1).chain([SHORT]).max().unwrap_or(SHORT)
}

/// A container's kind, in one word.
pub(crate) fn kind(kind: ContainerKind) -> &'static str {
    match kind {
        ContainerKind::Init => "init",
        ContainerKind::Sidecar => "sidecar",
        ContainerKind::App => "app",
    }
}

/// What went wrong, without the lines that draw the place in a text.
pub(crate) fn first_line(error: &impl ToString) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The first of some things, and how many there are beside them.
pub(crate) fn listed<S: Borrow<str>>(things: &[S], most: usize) -> String {
    let (named, more) = things.split_at(things.len().min(most));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(plain("XID 79"), "XID 79");
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{9b}1m\u{202e}d"), "a\\u{1b}[2Jb\\nc\\u{9b}1m\\u{202e}d");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |name: &str, x: &str| vec![("NAME", name.to_owned()), ("X", x.to_owned())];
        let rows = vec![row("a", ""), row("long\tname", "é")];
        insta::assert_snapshot!(table(rows.clone(), true), @r"
        NAME         X
        a            <none>
        long\tname   é
        ");
        assert_eq!(table(rows, false).lines().count(), 2);
    }
}

//! Output shown in the documents: its table headings are those of the snapshots, which other tests compare with the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

type Headings = BTreeSet<Vec<String>>;

/// Columns of each table in a text. Figures in headings, such as loads, don't count.
fn headings(text: &str) -> Headings {
    let is_heading = |line: &&str| line.contains("   ") && !line.contains(char::is_lowercase) && !line.starts_with(' ');
    let name = |column: &str| column.trim().replace(|c: char| c.is_ascii_digit(), "");
    let columns = |line: &str| {
        let mut columns: Vec<String> = line.split("   ").map(name).filter(|name| !name.is_empty()).collect();
        columns.dedup();
        columns
    };
    text.lines().filter(is_heading).map(columns).collect()
}

fn snapshot_headings(directory: &Path) -> Headings {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let of_path = |path: std::path::PathBuf| match path.extension() {
        _ if path.is_dir() => snapshot_headings(&path),
        Some(extension) if extension == "snap" => headings(&fs::read_to_string(path).unwrap()),
        _ => Headings::new(),
    };
    paths.flat_map(of_path).collect()
}

#[test]
fn documented_table_headings_match_the_snapshots() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let printed = snapshot_headings(root);
    for document in ["README.md", "docs/use.md"] {
        let text = fs::read_to_string(root.join("../..").join(document)).unwrap();
        let outputs = text.split("```").filter(|block| block.starts_with("console") && block.contains("kubectl divvy"));
        let documented: Headings = outputs.flat_map(headings).collect();
        let stale: Vec<_> = documented.difference(&printed).collect();
        assert!(!documented.is_empty() && stale.is_empty(), "{document}: kubectl divvy prints no table with {stale:?}");
    }
}

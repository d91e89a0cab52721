//! Lists of offenders, grouped by crate.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use crate::workspace::{root, shown};

/// What a rule found, by crate or folder.
#[derive(Default)]
pub(crate) struct Offenders(BTreeMap<String, Vec<String>>);

impl Offenders {
    /// Notes one, at a line of a file.
    pub(crate) fn add(&mut self, file: &Path, line: usize, what: &str) {
        self.0.entry(group(file)).or_default().push(format!("{}:{line}: {what}", shown(file)));
    }

    /// Panics with everything that was found, and how much of it where.
    pub(crate) fn assert_none(&self, rule: &str) {
        let mut text = String::new();
        for (group, offenders) in &self.0 {
            writeln!(text, "\n{group}: {}\n  {}", offenders.len(), offenders.join("\n  ")).unwrap();
        }
        for (group, offenders) in &self.0 {
            write!(text, "\n{:5} {group}", offenders.len()).unwrap();
        }
        assert!(self.0.is_empty(), "{rule}\n{text}");
    }
}

/// The crate or folder that a file belongs to: two levels below the root, or one.
fn group(file: &Path) -> String {
    let relative = file.strip_prefix(root()).unwrap_or(file);
    let mut names = relative.parent().into_iter().flat_map(Path::components).map(|it| it.as_os_str().to_string_lossy());
    match (names.next(), names.next()) {
        (Some(first), Some(second)) if matches!(&*first, "src" | "tests") => format!("{first}/{second}"),
        (Some(first), _) => first.into_owned(),
        (None, _) => ".".into(),
    }
}

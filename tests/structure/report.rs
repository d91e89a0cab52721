//! Lists of offenders, grouped by crate.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use crate::workspace::{root, shown};

/// Offences that are older than their rule: `rule crate count`.
const KNOWN: &str = include_str!("known.txt");

/// What a rule found, by crate or folder.
#[derive(Default)]
pub(crate) struct Offenders(BTreeMap<String, Vec<String>>);

impl Offenders {
    /// Notes one, at a line of a file.
    pub(crate) fn add(&mut self, file: &Path, line: usize, what: &str) {
        self.0.entry(group(file)).or_default().push(format!("{}:{line}: {what}", shown(file)));
    }

    /// Panics with everything that was found, where a crate has any.
    pub(crate) fn assert_none(&self, rule: &str) {
        self.assert_known("", rule);
    }

    /// Panics with what was found in crates that have more of it than [`KNOWN`] says of them. Those numbers may only fall:
    /// `UPDATE_KNOWN=1` prints the lines as they are now.
    pub(crate) fn assert_known(&self, key: &str, rule: &str) {
        if std::env::var_os("UPDATE_KNOWN").is_some() && !key.is_empty() {
            self.0.iter().for_each(|(group, offenders)| println!("{key} {group} {}", offenders.len()));
            return;
        }
        let known: BTreeMap<&str, usize> = KNOWN
            .lines()
            .filter_map(|line| line.strip_prefix(key)?.trim().split_once(' '))
            .filter(|_| !key.is_empty())
            .map(|(group, count)| (group, count.parse().unwrap()))
            .collect();
        let mut text = String::new();
        for (group, offenders) in &self.0 {
            let allowed = known.get(group.as_str()).copied().unwrap_or(0);
            if offenders.len() > allowed {
                let (count, list) = (offenders.len(), offenders.join("\n  "));
                writeln!(text, "\n{group}: {count}, of which {allowed} are known\n  {list}").unwrap();
            }
        }
        assert!(text.is_empty(), "{rule}\n{text}");
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

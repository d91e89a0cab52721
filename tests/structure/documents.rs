//! Pages lead where they say, and the README stays a landing page.

use std::{
    fs,
    path::{Path, PathBuf},
};

use regex_lite::Regex;

use crate::{
    report::Offenders,
    workspace::{files, root},
};

/// Pages for users and contributors.
pub(crate) fn pages() -> Vec<PathBuf> {
    let top = fs::read_dir(root()).unwrap().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = top.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    found.extend(["docs", "deploy"].iter().flat_map(|folder| files(&root().join(folder), "md")));
    found
}

#[test]
fn links_lead_to_files_and_headings() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut offenders = Offenders::default();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (number, line) in text.lines().enumerate() {
            for found in link.captures_iter(line).filter(|found| !leads_somewhere(&page, &found[1])) {
                offenders.add(&page, number + 1, &found[1]);
            }
        }
    }
    offenders.assert_none("links that lead nowhere:");
}

/// Whether a link's file and heading are there. Addresses of other hosts, and of the hosting service itself, aren't asked.
fn leads_somewhere(page: &Path, link: &str) -> bool {
    if link.contains("://") || link.starts_with("../../actions/") {
        return true;
    }
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_owned() } else { page.with_file_name(file) };
    let has = |text: String| text.lines().any(|line| line.starts_with('#') && anchor(line) == heading);
    target.exists() && (heading.is_empty() || fs::read_to_string(target).is_ok_and(has))
}

/// The anchor that a heading gets: lower case, spaces as hyphens, punctuation left out.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

#[test]
fn readme_is_a_landing_page() {
    const LONGEST: usize = 120;
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= LONGEST, "README.md has {lines} lines; above {LONGEST} it is no landing page: move some to docs/");
}

//! House words that the field has a word for. They must not stand in names, documentation comments, log lines, help and
//! errors of production code, in the documentation, or in comments of what is installed.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use regex_lite::{Regex, RegexBuilder};

use crate::{
    documents::pages,
    modules::{Module, production},
    report::Offenders,
    workspace::{crates, files, root},
};

/// Where a word is looked for.
#[derive(Clone, Copy, PartialEq)]
enum Where {
    /// In names of the code: as one of the words that a name is made of.
    Names,
    /// In what people read: documentation comments, strings, Markdown, comments of manifests.
    Prose,
    /// In both.
    Both,
}

/// What not to write, where, and what to write instead.
const WORDS: &[(&str, Where, &str)] = &[
    ("books?", Where::Names, "ledger (node), accounting region (shim), cluster state (index)"),
    ("books", Where::Prose, "ledger (node), accounting region (shim), cluster state (index)"),
    ("promis(e|es|ed|ing)", Where::Both, "reservation, reserved; guarantee"),
    ("settle(s|d)?", Where::Both, "confirmed, chosen, determined"),
    ("bars?", Where::Names, "unschedulable reason"),
    ("boards?", Where::Names, "score cache"),
    ("headlines?", Where::Both, "summary, summarised reason"),
    ("onlookers?", Where::Both, "follower"),
    ("leash(es)?", Where::Both, "stop handle"),
    ("rival(s|led|ry)?", Where::Both, "conflicting device plugin, conflict"),
    ("furnish(es|ed|ing)?", Where::Both, "prepare"),
    ("handouts?", Where::Both, "prepared container, allocation"),
    ("rosters?", Where::Both, "card list"),
    ("apprais(er|ers|al|e|es|ed)", Where::Both, "fragmentation scorer"),
    ("rooms?", Where::Names, "allocatable or free CPU, free capacity"),
    ("mix(es)?", Where::Names, "request distribution"),
    ("standings?", Where::Names, "status"),
    ("vouch(es|ed)?", Where::Both, "sign, verify"),
    ("heard", Where::Both, "received, subscribed, reported"),
    ("(said|told|asked) once", Where::Prose, "logged once, reported once, requested once"),
    ("back[ _-]door", Where::Both, "metrics listener, plain-HTTP listener"),
    ("comes? by itself", Where::Prose, "resumes automatically"),
    ("stands? back", Where::Prose, "unregisters, stays unregistered"),
    ("of ours", Where::Prose, "Divvy's"),
    ("as (it )?ever", Where::Prose, "as before, unchanged"),
    ("cut(ting)? (it |cards? |gpus? )?anew", Where::Prose, "repartition"),
    ("what is wanted of", Where::Prose, "the fields used here, the requested …"),
    ("whoever", Where::Prose, "the caller, the client, the process that …"),
];

/// Phrases in which a word above is the right one.
const ALLOWED: &[&str] =
    &["kubelet settle time", "kubeletSettleTime", "kubelet-settle-time", "region/books", "\"books\"", "`rivalled`"];

struct Rule {
    pattern: Regex,
    place: Where,
    instead: &'static str,
}

impl Rule {
    fn all() -> Vec<Self> {
        let rule = |&(word, place, instead): &(&str, Where, &'static str)| Self {
            pattern: RegexBuilder::new(&format!(r"\b(?:{word})\b")).case_insensitive(true).build().unwrap(),
            place,
            instead,
        };
        WORDS.iter().map(rule).collect()
    }
}

#[test]
fn names_use_the_fields_words() {
    let (rules, name) = (Rule::all(), Regex::new(r"[A-Za-z_]\w*").unwrap());
    let mut offenders = Offenders::default();
    for module in crates().iter().filter(|krate| krate.is_product()).flat_map(production) {
        let mut seen = BTreeSet::new();
        for (number, line) in module.source.code.lines().enumerate() {
            for found in name.find_iter(line).filter(|found| seen.insert(found.as_str())) {
                let words = without_allowed(&words_of(found.as_str()));
                for rule in rules.iter().filter(|rule| rule.place != Where::Prose && rule.pattern.is_match(&words)) {
                    offenders.add(&module.file, number + 1, &format!("{} → {}", found.as_str(), rule.instead));
                }
            }
        }
    }
    offenders.assert_known("names", "names that need our own dictionary (what → instead):");
}

#[test]
fn prose_uses_the_fields_words() {
    let rules = Rule::all();
    let mut offenders = Offenders::default();
    for module in crates().iter().filter(|krate| krate.is_product()).flat_map(production) {
        for (line, text) in prose(&module) {
            check(&rules, &module.file, line, &text, &mut offenders);
        }
    }
    for file in documents() {
        let text = fs::read_to_string(&file).unwrap();
        let manifest = file.extension().is_some_and(|it| it == "yaml");
        for (number, line) in text.lines().enumerate() {
            let read = if manifest { line.split_once('#').map_or("", |(_, comment)| comment) } else { line };
            check(&rules, &file, number + 1, read, &mut offenders);
        }
    }
    offenders.assert_known("prose", "prose that needs our own dictionary (what → instead):");
}

fn check(rules: &[Rule], file: &Path, line: usize, text: &str, offenders: &mut Offenders) {
    let text = without_allowed(text);
    for rule in rules.iter().filter(|rule| rule.place != Where::Names) {
        if let Some(found) = rule.pattern.find(&text) {
            offenders.add(file, line, &format!("{} → {}", found.as_str(), rule.instead));
        }
    }
}

fn without_allowed(text: &str) -> String {
    ALLOWED.iter().fold(text.to_owned(), |text, phrase| text.replace(phrase, ""))
}

/// Documentation comments and strings of a module, line by line.
fn prose(module: &Module) -> Vec<(usize, String)> {
    let source = &module.source;
    let documentation = source.comments.iter().filter(|it| it.text.starts_with("///") || it.text.starts_with("//!"));
    let lines = |text: &crate::lexer::Text| {
        let first = source.line(text.at);
        text.text.lines().enumerate().map(|(at, line)| (first + at, line.to_owned())).collect::<Vec<_>>()
    };
    documentation.chain(&source.strings).flat_map(lines).collect()
}

/// What users and contributors read, and what they install.
fn documents() -> Vec<PathBuf> {
    let mut found = pages();
    found.extend(files(&root().join("deploy"), "yaml"));
    found
}

/// Takes a name apart: `kubelet_settleTime` gives `kubelet settle time`.
fn words_of(name: &str) -> String {
    let mut words = String::new();
    let mut lower = false;
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && lower) {
            words.push(' ');
        }
        lower = letter.is_lowercase() || letter.is_ascii_digit();
        if letter != '_' {
            words.extend(letter.to_lowercase());
        }
    }
    words
}

#[test]
fn names_are_taken_apart_into_words() {
    assert_eq!(words_of("kubelet_settleTime"), "kubelet settle time");
    assert_eq!(words_of("MOST_BOARDS"), "most boards");
    assert_eq!(words_of("Fnv64Hash"), "fnv64 hash");
}

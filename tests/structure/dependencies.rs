//! What `cargo deny check` would say of licences, bans and sources, without it: the rules are read from `deny.toml`. Advisories
//! need their database; with cargo-deny installed `cargo deny check` looks at them too.

use std::{collections::BTreeMap, fs};

use regex_lite::Regex;
use serde_json::Value;

use crate::workspace::{metadata, root};

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn licences_are_allowed() {
    let allowed = list("licenses", "allow");
    let refused = |package: &&Value| !permits(package["license"].as_str().unwrap_or_default(), &allowed);
    let offenders: Vec<_> =
        packages().into_iter().filter(refused).map(|it| format!("{}: {}", name(it), it["license"])).collect();
    assert!(offenders.is_empty(), "licences that deny.toml doesn't allow:\n{}", offenders.join("\n"));
}

#[test]
fn banned_crates_are_absent() {
    let banned = Regex::new(r#"crate = "([^"]+)""#).unwrap();
    let section = section("bans");
    let banned: Vec<_> = banned.captures_iter(&section).map(|found| found[1].to_owned()).collect();
    assert!(!banned.is_empty(), "deny.toml: [bans] names no crate");
    let offenders: Vec<_> = packages().into_iter().map(name).filter(|name| banned.contains(name)).collect();
    assert!(offenders.is_empty(), "crates that deny.toml bans: {}", offenders.join(", "));
}

#[test]
fn sources_are_crates_io_or_this_tree() {
    let foreign = |package: &&Value| package["source"].as_str().is_some_and(|source| source != REGISTRY);
    let offenders: Vec<_> =
        packages().into_iter().filter(foreign).map(|it| format!("{}: {}", name(it), it["source"])).collect();
    assert!(offenders.is_empty(), "crates from elsewhere:\n{}", offenders.join("\n"));
}

#[test]
fn requirements_name_a_version() {
    let mut offenders = Vec::new();
    for package in packages().into_iter().filter(|package| package["source"].is_null()) {
        let wildcard = |it: &&Value| it["req"] == "*" && it["path"].is_null();
        let found = package["dependencies"].as_array().unwrap().iter().filter(wildcard);
        offenders.extend(found.map(|it| format!("{} of {}", it["name"], name(package))));
    }
    assert!(offenders.is_empty(), "dependencies of any version: {}", offenders.join(", "));
}

/// Prints what stands twice in the tree, which deny.toml only warns of.
#[test]
fn duplicates_are_listed() {
    let mut versions: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for package in packages() {
        versions.entry(name(package)).or_default().push(package["version"].as_str().unwrap());
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        println!("{name}: {}", versions.join(", "));
    }
}

/// The packages that are compiled. Cargo also lists those that only a weak feature (`ring?/std`) names.
fn packages() -> Vec<&'static Value> {
    let metadata = metadata();
    let by_id = |list: &'static Value| -> BTreeMap<&str, &Value> {
        list.as_array().unwrap().iter().map(|it| (it["id"].as_str().unwrap(), it)).collect()
    };
    let (packages, nodes) = (by_id(&metadata["packages"]), by_id(&metadata["resolve"]["nodes"]));
    let members = metadata["workspace_members"].as_array().unwrap();
    let mut pending: Vec<_> = members.iter().map(|id| id.as_str().unwrap()).collect();
    let mut compiled = BTreeMap::new();
    while let Some(id) = pending.pop() {
        if compiled.insert(id, packages[id]).is_none() {
            let enabled = nodes[id]["deps"].as_array().unwrap().iter().map(|it| it["pkg"].as_str().unwrap());
            pending.extend(enabled.filter(|dependency| is_enabled(packages[id], nodes[id], packages[dependency])));
        }
    }
    compiled.into_values().collect()
}

/// Whether a package's features switch a dependency on, if it is an optional one.
fn is_enabled(package: &Value, node: &Value, dependency: &Value) -> bool {
    let declared = package["dependencies"].as_array().unwrap();
    let mut declared = declared.iter().filter(|it| it["name"] == dependency["name"]).peekable();
    if declared.peek().is_none() || declared.clone().any(|it| it["optional"] == false) {
        return true;
    }
    let features = node["features"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    let switches: Vec<_> =
        features.flat_map(|it| package["features"][it].as_array().unwrap()).map(|it| it.as_str().unwrap()).collect();
    declared.any(|it| {
        let key = it["rename"].as_str().or(it["name"].as_str()).unwrap();
        let named = |switch: &&str| switch.strip_prefix("dep:").unwrap_or(switch).split('/').next() == Some(key);
        switches.iter().any(named)
    })
}

fn name(package: &Value) -> String {
    package["name"].as_str().unwrap().to_owned()
}

/// A table of `deny.toml`, as text.
fn section(name: &str) -> String {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let (_, section) = text.split_once(&format!("[{name}]\n")).unwrap_or_else(|| panic!("deny.toml: no [{name}]"));
    section.split("\n[").next().unwrap().to_owned()
}

/// A list of strings in a table of `deny.toml`.
fn list(table: &str, key: &str) -> Vec<String> {
    let section = section(table);
    let list = section.split_once(&format!("{key} = [")).unwrap_or_else(|| panic!("deny.toml: no {table}.{key}")).1;
    list.split(']')
        .next()
        .unwrap()
        .split(',')
        .map(|it| it.trim().trim_matches('"').to_owned())
        .filter(|it| !it.is_empty())
        .collect()
}

/// Whether an SPDX expression can be met by these licences; `/` is the old way to write `OR`.
fn permits(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut at = 0;
    any_of(&words, &mut at, allowed) && at == words.len()
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all_of(words, at, allowed);
    }
    met
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut met = licence(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= licence(words, at, allowed);
    }
    met
}

fn licence(words: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    if words.get(*at) == Some(&"(") {
        *at += 1;
        let met = any_of(words, at, allowed);
        *at += 1;
        return met;
    }
    let mut licence = words.get(*at).copied().unwrap_or_default().to_owned();
    *at += 1;
    if words.get(*at) == Some(&"WITH") {
        licence = format!("{licence} WITH {}", words.get(*at + 1).copied().unwrap_or_default());
        *at += 2;
    }
    allowed.contains(&licence)
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = ["MIT".to_owned(), "Unicode-3.0".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()];
    for met in
        ["MIT", "MIT/Apache-2.0", "(GPL-3.0 OR MIT) AND Unicode-3.0", "Apache-2.0 WITH LLVM-exception OR GPL-2.0"]
    {
        assert!(permits(met, &allowed), "{met}");
    }
    for unmet in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR GPL-3.0) AND Apache-2.0"] {
        assert!(!permits(unmet, &allowed), "{unmet}");
    }
}

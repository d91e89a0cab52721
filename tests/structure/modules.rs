//! The modules of a crate's production code, found as the compiler finds them: by `mod` declarations from its root file.

use std::path::{Path, PathBuf};

use regex_lite::Regex;

use crate::{lexer::Source, workspace::Crate};

/// A file of production code.
pub(crate) struct Module {
    pub(crate) file: PathBuf,
    /// The path of its module within the crate, empty for the root.
    pub(crate) path: Vec<String>,
    pub(crate) source: Source,
}

/// The files of one crate's library or program, the root first.
pub(crate) fn modules(root: &Path) -> Vec<Module> {
    let mut found = Vec::new();
    visit(root.to_owned(), Vec::new(), root.parent().unwrap(), &mut found);
    found
}

/// The files of a crate's library and programs.
pub(crate) fn production(krate: &Crate) -> Vec<Module> {
    krate.roots.iter().flat_map(|root| modules(root)).collect()
}

/// Adds a file and those that it declares as modules, which lie in `directory`.
fn visit(file: PathBuf, path: Vec<String>, directory: &Path, found: &mut Vec<Module>) {
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let source = Source::production(&text);
    let declared = Regex::new(r"((?:#\[[^\]]*\]\s*)*)(?:pub(?:\(\w+\))?\s+)?\bmod\s+(?:r#)?(\w+)\s*;").unwrap();
    let mut children = Vec::new();
    for declaration in declared.captures_iter(&source.code) {
        let inline = inline(&source.code, declaration.get(2).unwrap().start());
        let below = directory.join(inline.join("/")).join(&declaration[2]);
        let child = [path.clone(), inline, vec![declaration[2].to_owned()]].concat();
        let attributes = &text[declaration.get(1).unwrap().range()];
        children.extend(
            module_files(&file, &below, attributes).into_iter().map(|file| (file, child.clone(), below.clone())),
        );
    }
    found.push(Module { file, path, source });
    for (file, path, below) in children {
        visit(file, path, &below, found);
    }
}

/// The files of a module: those that its attributes name, as with one per processor, or the one beside its parent.
fn module_files(parent: &Path, below: &Path, attributes: &str) -> Vec<PathBuf> {
    let path = Regex::new(r#"path = "([^"]+)""#).unwrap();
    let named: Vec<_> = path.captures_iter(attributes).map(|found| parent.with_file_name(&found[1])).collect();
    let plain = below.with_extension("rs");
    match (named.is_empty(), plain.exists()) {
        (false, _) => named,
        (true, true) => vec![plain],
        (true, false) => vec![below.join("mod.rs")],
    }
}

/// The inline modules around this offset, the outermost first.
pub(crate) fn inline(code: &str, at: usize) -> Vec<String> {
    let opened = Regex::new(r"\bmod\s+(\w+)\s*\{").unwrap();
    let around = |found: &regex_lite::Captures<'_>| {
        let body = found.get(0).unwrap().end();
        body <= at && depth(&code[body..at]).is_some()
    };
    opened.captures_iter(code).filter(around).map(|found| found[1].to_owned()).collect()
}

/// How many braces are open at the end, unless more were closed than opened on the way.
fn depth(code: &str) -> Option<usize> {
    code.bytes().try_fold(0_usize, |depth, byte| match byte {
        b'{' => Some(depth + 1),
        b'}' => depth.checked_sub(1),
        _ => Some(depth),
    })
}

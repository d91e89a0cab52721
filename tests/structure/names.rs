//! Names and comments that can be found and read alone.

use std::collections::BTreeMap;

use regex_lite::Regex;

use crate::{
    lexer::Source,
    modules::{inline, production},
    report::Offenders,
    workspace::{crates, files, root, shown},
};

#[test]
fn doc_comments_can_be_read_alone() {
    let start = Regex::new(r"^//[/!] (Of|The same|Their|Its|It|Them) ").unwrap();
    let mut offenders = Offenders::default();
    for module in crates().iter().flat_map(production) {
        let mut last = 0;
        for comment in &module.source.comments {
            let line = module.source.line(comment.at);
            let first = line != last + 1 || !comment.text.starts_with("//");
            last = line;
            if let Some(found) = start.captures(&comment.text).filter(|_| first) {
                offenders.add(&module.file, line, &format!("\"{} …\"", &found[1]));
            }
        }
    }
    offenders
        .assert_known("doc-comments", "doc comments start with a noun or a verb, not with a genitive or a pronoun:");
}

#[test]
fn test_names_are_short() {
    const LONGEST: usize = 60;
    let test = Regex::new(r"#\[(?:tokio::)?test[\](][^{};]*?\bfn\s+(\w+)").unwrap();
    let mut offenders = Offenders::default();
    for file in files(root(), "rs") {
        let source = Source::parse(&std::fs::read_to_string(&file).unwrap());
        for found in test.captures_iter(&source.code) {
            let name = found.get(1).unwrap();
            if name.len() > LONGEST {
                offenders.add(&file, source.line(name.start()), &format!("{}: {}", name.len(), name.as_str()));
            }
        }
    }
    offenders.assert_known(
        "test-names",
        "test names of at most 60 characters: subject, condition, result; the story goes into a comment:",
    );
}

#[test]
fn main_files_only_call_the_library() {
    let mut offenders = Offenders::default();
    for main in crates().iter().filter(|krate| krate.is_product()).flat_map(|krate| &krate.roots) {
        let lines = std::fs::read_to_string(main).unwrap().lines().count();
        if main.ends_with("main.rs") && lines >= 20 {
            offenders.add(main, lines, "20 lines or more");
        }
    }
    offenders.assert_none("main.rs under 20 lines: the rest belongs to the library, where tests reach it:");
}

#[test]
fn no_function_is_called_of() {
    let of = Regex::new(r"\bfn\s+of\b").unwrap();
    let mut offenders = Offenders::default();
    for module in crates().iter().filter(|krate| krate.is_product()).flat_map(production) {
        for found in of.find_iter(&module.source.code) {
            offenders.add(&module.file, module.source.line(found.start()), found.as_str());
        }
    }
    offenders.assert_none("a function is named after what it gives or does; `of` says neither:");
}

#[test]
fn public_types_of_a_crate_have_different_names() {
    let public = Regex::new(r"\bpub(?:\([^)]*\))?\s+(?:unsafe\s+)?(?:struct|enum|union|trait|type)\s+(\w+)").unwrap();
    let mut offenders = Offenders::default();
    for krate in crates().iter().filter(|krate| krate.is_product()) {
        let mut known = BTreeMap::new();
        for module in production(krate) {
            let code = &module.source.code;
            for found in public.captures_iter(code) {
                let name = found.get(1).unwrap();
                // Files of the same module are its variants, one for each processor.
                let path = [module.path.clone(), inline(code, name.start())].concat();
                let (other, file) =
                    known.entry(name.as_str().to_owned()).or_insert_with(|| (path.clone(), shown(&module.file)));
                if *other != path {
                    let what = format!("{}, as in {file}", name.as_str());
                    offenders.add(&module.file, module.source.line(name.start()), &what);
                }
            }
        }
    }
    offenders.assert_none("types that are used outside their file have names that no other of their crate has:");
}

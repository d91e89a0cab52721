//! Objects as the files of `deploy/` have them.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// What is read of the root of the source.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A file or directory of the source.
pub(crate) fn at(path: &str) -> PathBuf {
    Path::new(ROOT).join(path)
}

pub(crate) fn text(path: &str) -> String {
    std::fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The objects of one text, in order.
pub(crate) fn parse(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn read(path: &str) -> Vec<Value> {
    parse(&text(path))
}

/// Names of the files in a directory that kubectl would read.
pub(crate) fn files(directory: &str) -> Vec<String> {
    let entries =
        std::fs::read_dir(at(directory)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> =
        entries.filter(|name| Path::new(name).extension().is_some_and(|end| end == "yaml")).collect();
    names.sort();
    names
}

/// All objects of a directory.
pub(crate) fn all(directory: &str) -> Vec<Value> {
    files(directory).iter().flat_map(|file| read(&format!("{directory}/{file}"))).collect()
}

/// `Deployment divvy-system/divvy-webhook`: no two objects are called so.
pub(crate) fn called(object: &Value) -> String {
    let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let [name, namespace] = ["name", "namespace"].map(|field| part(&object["metadata"][field]));
    format!("{} {namespace}/{name}", part(&object["kind"]))
}

/// The only one of these that is called so.
pub(crate) fn find<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| called(object) == name);
    match (found.next(), found.next()) {
        (Some(object), None) => object,
        (Some(_), Some(_)) => panic!("two objects are {name}"),
        (None, _) => panic!("no {name}"),
    }
}

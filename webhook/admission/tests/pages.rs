//! What docs/dialects tells users, pod by pod.

use std::fs;
use std::path::Path;

use super::dialects::admitted;
use super::*;

/// Blocks of YAML in a page.
fn blocks(page: &str) -> Vec<&str> {
    page.split("```yaml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0)).collect()
}

/// What to switch on, by the first block of a page.
fn settings(block: &str) -> Settings {
    let said: Value = serde_saphyr::from_str(block).expect("YAML");
    let pair = |entry: &Value| {
        let (from, to) = entry.as_str()?.split_once('=')?;
        Some((from.to_owned(), to.to_owned()))
    };
    let rewritten = said["rewriteSchedulers"].as_array();
    Settings {
        dialects: serde_json::from_value(said["dialects"].clone()).expect("dialects"),
        rewrite_schedulers: rewritten.into_iter().flatten().filter_map(pair).collect(),
        ..Settings::default()
    }
}

/// A pod as a page prints it, with amounts as the API server writes them.
fn printed(block: &str) -> Value {
    let mut pod: Value = serde_saphyr::from_str(block).expect("YAML");
    for container in pod["spec"]["containers"].as_array_mut().expect("containers") {
        let Some(limits) = container["resources"]["limits"].as_object_mut() else { continue };
        for amount in limits.values_mut().filter(|amount| amount.is_number()) {
            *amount = amount.to_string().into();
        }
        let limits = limits.clone();
        container["resources"]["requests"] = limits.into();
    }
    pod
}

/// Whether a text is what is printed, where `…` stands for anything.
fn is_as_printed(text: &str, printed: &str) -> bool {
    let mut pieces = printed.split('…');
    let Some(mut rest) = pieces.next().and_then(|start| text.strip_prefix(start)) else { return false };
    let mut last = None;
    for piece in pieces {
        let Some((_, after)) = rest.split_once(piece) else { return false };
        (rest, last) = (after, Some(piece));
    }
    last.map_or(rest.is_empty(), |piece| text.ends_with(piece))
}

fn check(page: &str, settings: &Settings, before: &str, after: &str) {
    let (asked, wanted) = (printed(before), printed(after));
    let (got, _) = admitted(settings, &asked);
    for part in ["/spec/schedulerName", "/spec/containers"] {
        assert_eq!(got.pointer(part), wanted.pointer(part), "{page}: {part}");
    }
    let mut annotations = got["metadata"]["annotations"].as_object().expect("annotations").clone();
    annotations.retain(|key, _| !["divvy.dev/request", "divvy.dev/node-fit"].contains(&&**key));
    let told = wanted["metadata"]["annotations"].as_object().expect("annotations");
    assert_eq!(annotations.keys().collect::<Vec<_>>(), told.keys().collect::<Vec<_>>(), "{page}");
    for (key, text) in told {
        let [text, got] = [text, &annotations[key]].map(|text| text.as_str().expect("a text"));
        assert!(is_as_printed(got, text), "{page}: {key} is\n{got}\nand said to be\n{text}");
    }
}

#[test]
fn pods_become_what_the_pages_say() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/dialects");
    let mut checked = Vec::new();
    for entry in fs::read_dir(pages).expect("docs/dialects") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let page = fs::read_to_string(&path).expect("a page");
        let blocks = blocks(&page);
        let settings = settings(blocks[0]);
        for pair in blocks.windows(2) {
            if pair[0].starts_with("# before\nmetadata:") {
                assert!(pair[1].starts_with("# after"), "{name}");
                let is_favoured = pair[1].lines().next().is_some_and(|title| title.contains("favouredNamespaces"));
                let namespaces = is_favoured.then(|| "ml".to_owned()).into_iter().collect();
                let favoured_namespaces = FavouredNamespaces::Named(namespaces);
                check(&name, &Settings { favoured_namespaces, ..settings.clone() }, pair[0], pair[1]);
                checked.push(name.clone());
            }
        }
    }
    checked.sort();
    let mut all = divvy_systems::ALL.map(|system| system.name.to_owned());
    all.sort();
    assert_eq!(checked, all, "one pod a page");
}

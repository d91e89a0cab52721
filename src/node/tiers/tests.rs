use std::fs;

use super::*;
use crate::config::{KeySet as _, Keys};

/// A node that serves the shim, with this in its library, which lies in `run_dir` too.
pub(crate) fn shim(run_dir: &Path, library: &str) -> Box<dyn Enforcement> {
    let library = Library { content: library.into(), directory: run_dir.join("state/lib") };
    Box::new(Shim::install(&library, run_dir).expect("a directory"))
}

fn config(tier: &str, library: &Path, state: &Path) -> Config {
    let env = |name: &str| match name {
        "STATE_DIR" => Some(state.into()),
        "NODE_NAME" => Some("n1".into()),
        "TIER" => Some(tier.into()),
        "LIBDIVVY_PATH" => Some(library.into()),
        _ => None,
    };
    Keys::from_env(env).and_then(Keys::into_config).expect("valid")
}

#[test]
fn the_strongest_tier_is_served_that_is_allowed_and_possible() {
    let directory = tempfile::tempdir().expect("a directory");
    let (library, text) = (directory.path().join("libdivvy.so"), directory.path().join("text"));
    let missing = directory.path().join("missing");
    fs::write(&library, b"\x7fELF and so on").expect("written");
    fs::write(&text, "no library").expect("written");
    let of = |tier: &str, path: &Path| {
        let said = choose(&config(tier, path, directory.path()))
            .map_or_else(|refused| refused.to_string(), |choice| choice.to_string());
        said.replace(&directory.path().display().to_string(), "DIR")
    };
    assert_eq!(of("auto", &library), "shim (auto: there is DIR/libdivvy.so)");
    assert_eq!(of("shim", &library), "shim (configured, with DIR/libdivvy.so)");
    assert_eq!(of("accounting", &library), "accounting (configured)");
    let lacks = "libdivvyPath: DIR/missing: No such file or directory (os error 2): put the library there";
    assert_eq!(of("auto", &missing), format!("accounting (auto: {lacks})"));
    let wrong = |problem: &str| format!("accounting (auto: libdivvyPath: {problem}: put the library there)");
    assert_eq!(of("auto", &text), wrong("DIR/text: no library for Linux"));
    assert_eq!(of("auto", directory.path()), wrong("DIR: Is a directory (os error 21)"));
    assert_eq!(of("shim", &missing), format!("tier shim can't be served: {lacks}, or set tier to auto or accounting"));
}

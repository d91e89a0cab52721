use std::fs;
use std::path::Path;

use super::*;
use crate::config::{KeySet as _, Keys};
use divvy_runtime::settings::from_text;

/// A node that serves the shim, with this in its library, which lies in `run_dir` too.
pub(crate) fn shim(run_dir: &Path, library: &str) -> Box<dyn Isolation> {
    let library = Library { content: library.into(), directory: run_dir.join("state/lib") };
    Box::new(Shim::install(&library, run_dir).expect("a directory"))
}

/// A node that serves what the service of its directory adds to that.
pub(crate) fn mps(run_dir: &Path, library: &str) -> Box<dyn Isolation> {
    let library = Library { content: library.into(), directory: run_dir.join("state/lib") };
    let shim = Shim::install(&library, run_dir).expect("a directory");
    Box::new(Mps::new(shim, MpsDirectory::new(run_dir)))
}

fn config(tier: &str, library: &Path, state: &Path) -> Config {
    let env = |name: &str| match name {
        "STATE_DIR" => Some(state.into()),
        "NODE_NAME" => Some("n1".into()),
        "TIER" => Some(tier.into()),
        "LIBDIVVY_PATH" => Some(library.into()),
        "RUN_DIR" => Some(library.with_file_name("run").into()),
        _ => None,
    };
    Keys::from_env(env).and_then(Keys::into_config).expect("valid")
}

#[test]
fn tier_auto_selects_the_strongest_available() {
    let directory = tempfile::tempdir().expect("a directory");
    let (library, text) = (directory.path().join("libdivvy.so"), directory.path().join("text"));
    let missing = directory.path().join("missing");
    fs::write(&library, b"\x7fELF and so on").expect("written");
    fs::write(&text, "no library").expect("written");
    let of = |tier: &str, path: &Path| {
        let said = select(&config(tier, path, directory.path()))
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

#[test]
fn tier_of_some_gpus_is_served_or_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (library, missing) = (directory.path().join("libdivvy.so"), directory.path().join("missing"));
    fs::write(&library, b"\x7fELF and so on").expect("written");
    let of = |tier: &str, path: &Path, of_some: &str| {
        let card_overrides = from_text(&format!("[{{index: 0, tier: {of_some}}}]")).expect("valid");
        let said = select(&Config { card_overrides, ..config(tier, path, directory.path()) })
            .map_or_else(|refused| refused.to_string(), |choice| choice.to_string());
        said.replace(&directory.path().display().to_string(), "DIR")
    };
    assert_eq!(of("accounting", &library, "shim"), "shim (of some GPUs, by cardOverrides, with DIR/libdivvy.so)");
    assert_eq!(of("auto", &library, "shim"), "shim (auto: there is DIR/libdivvy.so)");
    assert_eq!(of("shim", &library, "accounting"), "shim (configured, with DIR/libdivvy.so)");
    assert_eq!(of("accounting", &missing, "accounting"), "accounting (configured)");
    let refused = "tier shim can't be served: libdivvyPath: DIR/missing: No such file or directory (os error 2): put the \
                   library there, or take it out of cardOverrides";
    assert_eq!([of("accounting", &missing, "shim"), of("auto", &missing, "shim")], [refused; 2]);
    let place = MpsDirectory::new(&directory.path().join("run"));
    place.create().expect("directories");
    let _up = place.mark_ready().expect("a lock");
    let refused = "cardOverrides, index 0: on a node of tier mps all GPUs have the same tier";
    assert_eq!([of("auto", &library, "shim"), of("mps", &library, "accounting")], [refused; 2]);
}

#[test]
fn tier_mig_requires_mig_strategy_and_no_overcommit() {
    let of = |keys: &[(&str, &str)]| {
        let env = |name: &str| match name {
            "NODE_NAME" => Some("n1".into()),
            "TIER" => Some("mig".into()),
            _ => keys.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into()),
        };
        let config = Keys::from_env(env).and_then(Keys::into_config).expect("valid");
        select(&config).map_or_else(|refused| refused.to_string(), |choice| choice.to_string())
    };
    for strategy in ["single", "mixed"] {
        assert_eq!(of(&[("MIG_STRATEGY", strategy)]), "mig (configured)");
        for scale in ["MEMORY_SCALE", "CORES_SCALE"] {
            assert_eq!(
                of(&[("MIG_STRATEGY", strategy), (scale, "1.5")]),
                "tier mig can't be served: MIG instances can't be overcommitted or reserved in part: set memoryScale and \
                 coresScale to 1"
            );
        }
    }
    assert_eq!(
        of(&[]),
        "tier mig can't be served: migStrategy none advertises no MIG instances: set it to single or mixed, or set tier \
         to auto"
    );
}

#[test]
fn tier_mps_requires_mps_to_be_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let library = directory.path().join("libdivvy.so");
    let missing = directory.path().join("missing");
    fs::write(&library, b"\x7fELF and so on").expect("written");
    let of = |tier: &str, path: &Path| {
        let said = select(&config(tier, path, directory.path()))
            .map_or_else(|refused| refused.to_string(), |choice| choice.to_string());
        said.replace(&directory.path().display().to_string(), "DIR")
    };
    let refused = |why: &str| {
        format!(
            "tier mps can't be served: CUDA's MPS is not up on this node: DaemonSet divvy-mps runs it on nodes with label \
             divvy.dev/mps=true; see the log of its pod ({why}); or set tier to auto, shim or accounting"
        )
    };
    let absent = "DIR/run/mps/ready: No such file or directory (os error 2)";
    assert_eq!(of("mps", &library), refused(absent));
    let place = MpsDirectory::new(&directory.path().join("run"));
    place.create().expect("directories");
    let up = place.mark_ready().expect("a lock");
    assert_eq!(place.supervisor(), Ok(std::process::id()));
    assert_eq!(of("mps", &library), "mps (configured, with the service and DIR/libdivvy.so)");
    assert_eq!(of("auto", &library), "mps (auto: there are the service and DIR/libdivvy.so)");
    assert_eq!(of("shim", &library), "shim (configured, with DIR/libdivvy.so)");
    let lacks = "libdivvyPath: DIR/missing: No such file or directory (os error 2): put the library there";
    assert_eq!(of("auto", &missing), format!("accounting (auto: {lacks})"), "alone the service counts processes apart");
    assert!(of("mps", &missing).starts_with(&format!("tier mps can't be served: {lacks}")));
    drop(up);
    assert_eq!(of("mps", &library), refused("DIR/run/mps/ready is not locked"));
    assert_eq!(of("auto", &library), "shim (auto: there is DIR/libdivvy.so)");
}

#[tokio::test(start_paused = true)]
async fn tier_auto_notices_mps_coming_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let library = directory.path().join("libdivvy.so");
    fs::write(&library, b"\x7fELF and so on").expect("written");
    let ends = async |tier: &str| {
        let config = config(tier, &library, directory.path());
        tokio::time::timeout(LOOK * 3, outgrown(&config, Tier::Shim)).await.is_ok()
    };
    assert!(!ends("auto").await);
    let place = MpsDirectory::new(&directory.path().join("run"));
    place.create().expect("directories");
    let _up = place.mark_ready().expect("a lock");
    assert!(ends("auto").await);
    assert!(!ends("shim").await, "it has chosen");
}

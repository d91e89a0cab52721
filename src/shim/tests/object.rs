//! The library as a file: what it shows, and what it asks of a program that it is loaded into.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn library() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(output(Command::new(root.join("hack/libdivvy")).current_dir(&root)).trim_end())
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn symbols(library: &Path, which: &str) -> BTreeSet<String> {
    let listed = output(Command::new("nm").args(["--dynamic", "--format=just-symbols", which]).arg(library));
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn it_shows_its_hooks_and_nothing_else() {
    let hooks = divvy::table::names().chain(["dlsym", "dlvsym"]).map(str::to_owned);
    assert_eq!(symbols(&library(), "--defined-only"), hooks.collect());
}

#[test]
fn it_asks_nothing_of_a_program_that_any_c_library_lacks() {
    let library = library();
    let allowed = ["bcmp", "dl_iterate_phdr", "memcmp", "memcpy", "memmove", "memset", "strlen"].map(str::to_owned);
    let asked = symbols(&library, "--undefined-only");
    assert!(asked.is_subset(&allowed.into()), "{asked:?}");
    let dynamic = output(Command::new("readelf").args(["--dynamic", "--wide"]).arg(&library));
    for unwanted in ["NEEDED", "VERNEED", "INIT", "FINI", "TEXTREL"] {
        assert!(!dynamic.contains(unwanted), "{unwanted}: {dynamic}");
    }
    let headers = output(Command::new("readelf").args(["--program-headers", "--wide"]).arg(&library));
    assert!(!headers.contains("TLS"), "{headers}");
}

#[test]
fn it_is_small() {
    let bytes = library().metadata().expect("it is there").len();
    assert!(bytes <= 300 << 10, "{bytes} bytes");
}

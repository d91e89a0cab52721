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
fn object_exports_only_hooks() {
    let hooks = divvy::hooks::names().chain(["dlsym", "dlvsym"]).map(str::to_owned);
    assert_eq!(symbols(&library(), "--defined-only"), hooks.collect());
}

#[test]
fn object_imports_only_common_libc_symbols() {
    let library = library();
    let asked = output(Command::new("nm").args(["--dynamic", "--undefined-only"]).arg(&library));
    let asked: Vec<Vec<&str>> = asked.lines().map(|line| line.split_whitespace().collect()).collect();
    let allowed = ["bcmp", "memcmp", "memcpy", "memmove", "memset", "strlen"];
    // What the linker keeps for debuggers has another name in musl than in glibc.
    let may_be_missing = ["_r_debug", "_dl_debug_addr"];
    for symbol in asked {
        match *symbol {
            ["U", name] => assert!(allowed.contains(&name), "{name}"),
            ["w", name] => assert!(may_be_missing.contains(&name), "{name}"),
            _ => panic!("{symbol:?}"),
        }
    }
    let dynamic = output(Command::new("readelf").args(["--dynamic", "--wide"]).arg(&library));
    for unwanted in ["NEEDED", "VERNEED", "VERSYM", "INIT", "FINI", "TEXTREL"] {
        assert!(!dynamic.contains(unwanted), "{unwanted}: {dynamic}");
    }
}

/// glibc of 2012 (2.17) is the oldest that CUDA runs on. Compressed relocations came with 2.36, tables of hashes with 2.5.
#[test]
fn object_loads_with_linkers_of_2012() {
    let library = library();
    let readelf = |what: &str| output(Command::new("readelf").args([what, "--wide"]).arg(&library));
    let dynamic = readelf("--dynamic");
    assert!(dynamic.contains("(GNU_HASH)") && !dynamic.contains("RELR"), "{dynamic}");
    let relocations = readelf("--relocs");
    let kinds =
        relocations.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with("R_X86_64_")));
    let kinds: BTreeSet<&str> = kinds.collect();
    let known = ["R_X86_64_RELATIVE", "R_X86_64_GLOB_DAT", "R_X86_64_JUMP_SLOT", "R_X86_64_64"];
    assert!(!kinds.is_empty() && kinds.is_subset(&known.into()), "{kinds:?}");
    let header = readelf("--file-header");
    assert!(header.contains("UNIX - System V") && header.contains("DYN"), "{header}");
    let segments = readelf("--program-headers");
    let of_kind =
        |kind: &'static str| segments.lines().filter(move |line| line.split_whitespace().next() == Some(kind));
    assert_eq!(of_kind("TLS").count(), 0, "{segments}");
    assert!(of_kind("LOAD").count() > 0 && of_kind("LOAD").all(|line| line.ends_with(" 0x1000")), "{segments}");
    assert!(of_kind("GNU_STACK").any(|line| line.contains(" RW ")), "stacks stay data: {segments}");
}

#[test]
fn object_is_below_300_kib() {
    let bytes = library().metadata().expect("it is there").len();
    assert!(bytes <= 300 << 10, "{bytes} bytes");
}

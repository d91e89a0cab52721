//! How programs reach the driver, and what becomes of those that may not.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use fake_cuda::Machine;

use crate::container::{Container, GIB, LINKED, Share};

fn printed(container: &Container, program: &Path, route: &str) -> String {
    let output = container.command(program).arg(route).output().expect("a program that runs");
    assert!(output.status.success(), "{route}: {}\n{}", output.status, container.complaints());
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}

#[test]
fn every_lookup_route_shows_the_share_as_the_card() {
    let container = Container::of_memory(100);
    let linked = container.compile("routes", true);
    for route in ["linked", "next", "default"] {
        assert_eq!(printed(&container, &linked, route), "100 of 100", "{route}");
    }
    let loading = container.compile("routes", false);
    for route in ["dlsym", "resolver", "resolver-v2", "resolver-itself", "resolver-per-thread", "dlmopen", "early"] {
        assert_eq!(printed(&container, &loading, route), "100 of 100", "{route}");
    }
    assert_eq!(container.complaints(), "");
}

/// As extensions of Python are: what they are linked to stands in their own scope.
#[test]
fn linked_plugin_shows_the_share_as_the_card() {
    let container = Container::of_memory(100);
    let plugin = [&LINKED[..], &["-shared", "-fPIC"]].concat();
    container.build("routes", "plugin.so", &plugin);
    let host = container.compile("host", false);
    for route in ["linked", "default", "next"] {
        assert_eq!(printed(&container, &host, route), "100 of 100", "{route}");
    }
    assert_eq!(container.complaints(), "");
}

/// As static libraries of stubs are, for programs that run without a driver too.
#[test]
fn stubs_that_load_the_driver_late_show_the_share() {
    let container = Container::of_memory(100);
    container.build("stubs", "lib/libstubs.so", &["-shared", "-fPIC"]);
    let flags = ["-DLINKED", "-Wl,--no-as-needed", "-lstubs", "-Llib"];
    let program = container.build("routes", "late", &flags);
    assert_eq!(printed(&container, &program, "linked"), "100 of 100");
    assert_eq!(container.complaints(), "");
}

/// The stand-in's symbols have no versions, and real ones' need not have any either.
#[test]
fn dlvsym_shows_the_share_as_the_card() {
    let container = Container::of_memory(100);
    let loading = container.compile("routes", false);
    fs::write(container.path("script"), "DRIVER { global: *; };").expect("room");
    container.build("versioned", "libversioned.so", &["-shared", "-fPIC", "-Wl,--version-script=script"]);
    let output =
        container.command(loading).args(["dlvsym", "./libversioned.so"]).output().expect("a program that runs");
    assert_eq!(output.stdout, b"100 of 100\n", "{}", container.complaints());
}

#[test]
fn program_without_the_library_sees_the_card() {
    let container = Container::of_memory(100);
    let program = container.compile("routes", false);
    let output = container.command_without_library(program).arg("dlsym").output().expect("a program that runs");
    assert_eq!(output.stdout, b"1024 of 1024\n");
}

#[test]
fn unknown_function_revision_passes_and_is_counted() {
    let mut machine = Machine::uniform(1, GIB);
    let like = fake_cuda::Gain { like: "cuMemGetInfo_v2".to_owned(), since: 11_000 };
    machine.gains.insert("cuMemGetInfo_v3".to_owned(), like);
    let container = Container::new(&machine, &[Share::of_memory(100)]);
    let program = container.compile("routes", false);
    assert_eq!(printed(&container, &program, "resolver-v2"), "1024 of 1024");
    assert_eq!(container.totals(0).unknown, 1);
    let told = container.complaints();
    assert!(told.contains("a revision of cuMemGetInfo that isn't known") && told.lines().count() == 1, "{told}");
}

#[test]
fn unknown_revision_of_the_resolver_is_not_found() {
    let mut machine = Machine::uniform(1, GIB);
    let like = fake_cuda::Gain { like: "cuGetProcAddress_v2".to_owned(), since: 13_000 };
    machine.gains.insert("cuGetProcAddress_v3".to_owned(), like);
    let container = Container::new(&machine, &[Share::of_memory(100)]);
    let program = container.compile("routes", false);
    let output = container.command(program).arg("resolver-newest").output().expect("a program that runs");
    let told = container.complaints();
    assert!(!output.status.success() && told.contains("a revision of cuGetProcAddress that isn't known"), "{told}");
}

#[test]
fn functions_at_other_addresses_than_symbols_are_hooked() {
    let container =
        Container::new(&Machine { inner_addresses: true, ..Machine::uniform(1, GIB) }, &[Share::of_memory(100)]);
    let program = container.compile("routes", false);
    for route in ["resolver", "resolver-v2", "resolver-itself", "resolver-per-thread"] {
        assert_eq!(printed(&container, &program, route), "100 of 100", "{route}");
    }
    assert_eq!((container.totals(0).unknown, container.complaints()), (0, String::new()));
}

#[test]
fn missing_limits_refuse_memory_and_log_once() {
    let container = Container::of_memory(100);
    let program = container.compile("routes", false);
    let limits = fs::read_to_string(container.path("limits/limits")).expect("limits");
    for broken in ["", "# nothing\n", &limits.replace("compute cap", "compute none"), &limits[..limits.len() - 2]] {
        fs::write(container.path("limits/limits"), broken).expect("room");
        drop(fs::remove_file(container.path("stderr")));
        assert_eq!(printed(&container, &program, "dlsym"), "error 800", "{broken:?}");
        let told = container.complaints();
        assert!(told.starts_with("libdivvy: limits/limits: line ") && told.lines().count() == 1, "{told:?}");
    }
    fs::remove_file(container.path("limits/limits")).expect("a file");
    drop(fs::remove_file(container.path("stderr")));
    assert_eq!(printed(&container, &program, "dlsym"), "error 800");
    let told = container.complaints();
    assert!(told.contains("limits/limits: no such file or directory") && told.lines().count() == 1, "{told:?}");
}

#[test]
fn missing_or_invalid_region_refuses_memory() {
    let container = Container::of_memory(100);
    let program = container.compile("routes", false);
    let books = fs::read(container.path("region/books")).expect("books");
    let mut newer = books.clone();
    newer[8] = 3;
    for broken in [&[][..], &books[..4096], &newer] {
        fs::write(container.path("region/books"), broken).expect("room");
        drop(fs::remove_file(container.path("stderr")));
        assert_eq!(printed(&container, &program, "dlsym"), "error 800");
        let told = container.complaints();
        assert!(told.starts_with("libdivvy: region/books: region ") && told.lines().count() == 1, "{told:?}");
    }
    let path = container.path("region/books");
    for make in ["mkfifo books", "mkdir books", "ln -s /dev/zero books", "ln -s books books", "true"] {
        drop(fs::remove_file(&path).or_else(|_| fs::remove_dir(&path)));
        let made = Command::new("sh").args(["-c", make]).current_dir(container.path("region")).status();
        assert!(made.expect("a shell").success(), "{make}");
        drop(fs::remove_file(container.path("stderr")));
        assert_eq!(printed(&container, &program, "dlsym"), "error 800", "{make}");
        let told = container.complaints();
        assert!(told.starts_with("libdivvy: region/books: ") && told.lines().count() == 1, "{make}: {told:?}");
    }
}

#[test]
fn programs_without_cuda_are_unchanged() {
    let container = Container::of_memory(100);
    fs::remove_dir_all(container.path("limits")).expect("a directory");
    for line in ["true", "bash --version", "python3 --version", "cc --version", "ls /"] {
        let status = container.command("sh").args(["-c", line]).stdout(Stdio::null()).status().expect("a shell");
        assert!(status.success(), "{line}: {status}");
    }
    assert_eq!(container.complaints(), "");
}

//! Who looks into programs: sanitizers, tracers, auditors. The share holds under all of them.

use std::path::Path;
use std::process::Command;

use crate::container::{Container, LINKED, library};
use crate::programs::{is_there, output};

const HELD: &str = "exit status: 0\n100 of 100\n";

#[test]
fn programs_with_sanitizers_are_limited() {
    let container = Container::of_memory(100);
    for sanitizer in ["undefined", "thread", "leak", "address"] {
        let flag = format!("-fsanitize={sanitizer}");
        let flags = [&LINKED[..], &[&*flag]].concat();
        let compile = |name, flags: &[&str]| container.compile_with("cc", name, &format!("{name}-{sanitizer}"), flags);
        let (Some(plain), Some(linked)) = (compile("plain", &[&flag]), compile("routes", &flags)) else {
            eprintln!("left out: a C compiler without {flag}");
            continue;
        };
        // GCC's runtime for addresses wants to be the first of all libraries, and says what to set where it isn't. Leaks
        // and races are the driver's own, which is no instrumented library.
        let run = |mut command: Command| {
            command
                .env("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0")
                .env("LSAN_OPTIONS", "detect_leaks=0");
            output(command.env("TSAN_OPTIONS", "exitcode=0").arg("linked"))
        };
        let alone = run(container.command_without_library(&plain));
        assert_eq!(run(container.command(&plain)), alone, "{sanitizer}\n{}", container.complaints());
        let held = run(container.command(&linked));
        assert_eq!(held, HELD, "{sanitizer}\n{}", container.complaints());
    }
}

#[test]
fn programs_under_tracers_are_limited() {
    let container = Container::of_memory(100);
    let linked = container.compile("routes", true);
    let library = format!("LD_PRELOAD={}", library().display());
    let tracers: [(&str, &[&str]); 4] = [
        ("strace", &["-f", "-o", "/dev/null"]),
        ("ltrace", &["-o", "/dev/null"]),
        ("valgrind", &["-q", "--tool=none"]),
        ("gdb", &["-q", "-nx", "-batch", "-ex", "run", "-ex", "quit $_exitcode", "--args"]),
    ];
    for (tracer, arguments) in tracers.into_iter().filter(|(tracer, _)| is_there(tracer)) {
        let mut command = container.command_without_library(tracer);
        let said = output(command.args(arguments).args(["env", &library]).arg(&linked).arg("linked"));
        assert!(said.contains("\n100 of 100\n"), "{tracer}: {said}\n{}", container.complaints());
    }
}

#[test]
fn limits_hold_under_every_linker_setting() {
    let container = Container::of_memory(100);
    let (linked, loading) = (container.compile("routes", true), container.path("loading"));
    container.build("audit", "audit.so", &["-shared", "-fPIC"]);
    container.build("routes", "loading", &[]);
    let settings = [("LD_BIND_NOW", "1"), ("LD_BIND_NOT", "1"), ("LD_AUDIT", "./audit.so"), ("LD_DEBUG", "bindings")];
    let programs: [(&Path, &str); 2] = [(&linked, "linked"), (&loading, "dlsym")];
    for ((variable, value), (program, route)) in settings.into_iter().flat_map(|set| programs.map(|run| (set, run))) {
        let said = output(container.command(program).arg(route).env(variable, value));
        assert_eq!(said, HELD, "{variable}, {route}");
    }
}

//! Programs that notice nothing: they end as ever, print the same, and have the same descriptors.

use std::process::Command;

use crate::container::{Container, LINKED, library};

/// How a program ended and what it printed, with the library and without it.
fn both(container: &Container, program: &str, arguments: &[&str]) -> Option<[String; 2]> {
    let told = |preload: &str| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(container.path("")).env("LD_PRELOAD", preload);
        let output = command.output().ok()?;
        let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Some(format!("{}\n{out}\n{error}", output.status))
    };
    Some([told("")?, told(library().to_str().expect("a path"))?])
}

#[track_caller]
fn notices_nothing(container: &Container, program: &str, arguments: &[&str]) {
    match both(container, program, arguments) {
        Some([without, with]) => assert_eq!(with, without, "{program}"),
        None => eprintln!("left out: there is no {program}"),
    }
}

#[test]
fn interpreters_and_compilers_run_unchanged() {
    let container = Container::of_memory(100);
    let python = "import ctypes, os, ssl, sqlite3, subprocess
print(os.listdir('/proc/self/fd'), subprocess.call(['true']))
try: ctypes.CDLL(None).cuNothing
except AttributeError as error: print(error)
raise SystemExit(7)";
    let programs: [(&str, &[&str]); 8] = [
        ("bash", &["-c", "ls /proc/self/fd; exit 9"]),
        ("python3", &["-c", python]),
        ("node", &["-e", "console.log(require('fs').readdirSync('/proc/self/fd').length); process.exit(6)"]),
        ("java", &["-Xshare:auto", "-version"]),
        ("go", &["version"]),
        ("perl", &["-e", "opendir D, '/proc/self/fd'; print join ' ', sort readdir D; exit 8"]),
        ("cc", &["-xc", "-fsyntax-only", "/dev/null"]),
        ("git", &["--version"]),
    ];
    for (program, arguments) in programs {
        notices_nothing(&container, program, arguments);
    }
}

#[test]
fn errno_and_descriptors_of_c_programs_are_unchanged() {
    let container = Container::of_memory(100);
    for (name, flags) in [("plain", &[][..]), ("iterating", &["-DITERATES"][..])] {
        let program = container.build("plain", name, flags);
        let [without, with] = both(&container, program.to_str().expect("text"), &[]).expect("a program that runs");
        assert!(without.starts_with("exit status: 42") && without.contains("cuOfMyOwn 0 77"), "{without}");
        assert_eq!(with, without, "{name}");
    }
}

/// Statically linked ones load nothing; musl's linker loads the library, which finds all that it needs there.
#[test]
fn musl_and_static_programs_run_unchanged() {
    let container = Container::of_memory(100);
    for (compiler, name, flags) in [
        ("cc", "static", &["-static", "-Wno-error"][..]),
        ("musl-gcc", "musl", &[][..]),
        ("musl-gcc", "static-musl", &["-static"][..]),
    ] {
        let Some(program) = container.compile_with(compiler, "plain", name, flags) else {
            eprintln!("left out: no {compiler} that makes a {name} program");
            continue;
        };
        notices_nothing(&container, program.to_str().expect("text"), &[]);
    }
}

#[test]
fn other_preloaded_libraries_work_in_both_orders() {
    let container = Container::of_memory(100);
    for (name, to) in [("wrap", "wrap.so"), ("trace", "trace.so")] {
        container.build(name, to, &["-shared", "-fPIC"]);
    }
    let plain = container.compile("plain", false);
    let [linked, loading] = [("linked", true), ("dlsym", false)].map(|(route, is_linked)| {
        let to = format!("routes-{route}");
        let flags: &[&str] = if is_linked { &LINKED } else { &[] };
        (container.build("routes", &to, flags), route)
    });
    for other in ["./wrap.so", "./trace.so", "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libprofiler.so.0"] {
        if !is_loadable(&container, other) {
            eprintln!("left out: there is no {other}");
            continue;
        }
        let library = library().to_str().expect("a path");
        let alone = output(container.command_without_library(&plain).env("LD_PRELOAD", other));
        for order in [format!("{other} {library}"), format!("{library} {other}")] {
            let together = output(container.command_without_library(&plain).env("LD_PRELOAD", &order));
            assert_eq!(together, alone, "{order}");
            for (program, route) in [&linked, &loading] {
                let mut command = container.command_without_library(program);
                let shown = output(command.arg(route).env("LD_PRELOAD", &order));
                assert_eq!(shown, "exit status: 0\n100 of 100\n", "{route}, {order}");
            }
        }
    }
    assert_eq!(container.complaints(), "");
}

/// The linker goes on without what it can't preload, and says so.
fn is_loadable(container: &Container, library: &str) -> bool {
    let mut command = Command::new("true");
    let output = command.current_dir(container.path("")).env("LD_PRELOAD", library).output().expect("a program");
    output.stderr.is_empty()
}

pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().expect("a program that runs");
    format!("{}\n{}", output.status, String::from_utf8_lossy(&output.stdout))
}

pub(crate) fn is_there(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).any(|directory| directory.join(program).exists());
    if !found {
        eprintln!("left out: there is no {program}");
    }
    found
}

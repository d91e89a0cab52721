//! The check itself, against the stand-in: it measures what it says, finds what holds, and what doesn't.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// What a run left.
struct Run {
    code: i32,
    table: String,
    rows: Vec<Value>,
}

fn check(arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/gpu-check");
    Command::new(script).args(arguments).output().expect("a script that runs")
}

fn run(arguments: &[&str]) -> Run {
    let out = TempDir::new().expect("a directory");
    let to = out.path().to_str().expect("a path of letters");
    let ended = check(&[&["--stand-in", "--quick", "--out", to], arguments].concat());
    let complaints = String::from_utf8_lossy(&ended.stderr);
    let lines = fs::read_to_string(out.path().join("results.jsonl")).expect(&complaints);
    let rows = lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    let rows = rows.filter(|line: &Value| line.get("row").is_some()).collect();
    let table = String::from_utf8(ended.stdout).expect("text");
    Run { code: ended.status.code().expect("an end of its own"), table, rows }
}

/// A library that every program has loaded already: it adds nothing.
fn library_that_holds_nothing() -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("it is there on Linux");
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.find(|path| path.contains("/libc.so")).expect("the C library").to_owned()
}

// === impl Run ===

impl Run {
    fn failed(&self) -> Vec<&str> {
        let failed = self.rows.iter().filter(|row| row["verdict"] == "FAILED");
        failed.filter_map(|row| row["row"].as_str()).collect()
    }
}

#[test]
fn the_library_holds_and_every_line_of_the_table_is_kept() {
    let run = run(&["--only", "memory,robustness"]);
    let broken: Vec<_> = run.rows.iter().filter(|row| row.get("error").is_some()).collect();
    assert!(broken.is_empty(), "{broken:?}\n{}", run.table);
    assert!(run.rows.len() > 30, "{}", run.table);
    assert!(run.rows.iter().all(|row| run.table.contains(row["row"].as_str().expect("a name"))), "{}", run.table);
    assert!(run.failed().is_empty() && run.code == 0, "{}", run.table);
}

#[test]
fn a_library_that_holds_nothing_fails() {
    let run = run(&["--only", "memory", "--library", &library_that_holds_nothing()]);
    assert_eq!(run.code, 1);
    let failed = run.failed();
    for what in ["plain: refused in the end", "cuMemGetInfo: total", "  held above the limit, by the driver"] {
        assert!(failed.iter().any(|row| row.starts_with(what)), "{what}: {failed:?}");
    }
}

#[test]
fn wrong_use_ends_with_64() {
    let ended = check(&["--card", "none"]);
    assert_eq!(ended.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("--card"));
}

/// A program in a container that `run` makes, and what is said of it.
fn run_program(options: &[&str], program: &[&str]) -> Output {
    check(&[&["--stand-in", "run"], options, &["--"], program].concat())
}

#[test]
fn a_program_runs_with_its_share_and_its_exit_code() {
    let library = Path::new(env!("CARGO_BIN_EXE_gpu-check"));
    let program = library.to_str().expect("a path of letters");
    // A tenant that is told nothing ends with its input, once it has a context.
    let ended =
        run_program(&["--cores", "50", "--memory", "2048", "--context", "300"], &[program, "obey", "0", "grid"]);
    let lines = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{lines}");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "{}\n", "{lines}");
    assert!(lines.lines().count() >= 2, "{lines}");
    let refused = run_program(&["--memory", "200", "--context", "300"], &[program, "obey", "0", "grid"]);
    let lines = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && lines.contains("a context of CUDA takes 300 MiB"), "{lines}");
    // The context has to lie on the card.
    for (host, holds) in [("100", true), ("150", false)] {
        let options = ["--memory", "400", "--host", host, "--context", "300"];
        assert_eq!(run_program(&options, &[program, "obey", "0", "grid"]).status.success(), holds, "{host}");
    }
    assert_eq!(run_program(&[], &["sh", "-c", "exit 3"]).status.code(), Some(3));
    assert_eq!(run_program(&[], &["sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    assert_eq!(run_program(&[], &["no-such-program"]).status.code(), Some(127));
    assert_eq!(run_program(&["--cores", "101"], &["true"]).status.code(), Some(64));
}

/// What the programs of these experiments answer, in the order of the ways in which they run.
fn experiments(options: &[&str], program: &str) -> Vec<Value> {
    let out = TempDir::new().expect("a directory");
    let to = out.path().to_str().expect("a path of letters");
    let ended = check(&[&["--stand-in", "--out", to, "experiments"], options].concat());
    let table = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{table}");
    let lines = fs::read_to_string(out.path().join("results.jsonl")).expect("results");
    let rows = lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    rows.filter(|row: &Value| row["program"] == program).collect()
}

#[test]
fn experiments_answer_without_and_with_the_library() {
    let answers = experiments(&["--part", "1"], "routes");
    assert_eq!(answers.len(), 2, "{answers:?}");
    for answer in answers {
        assert_eq!(
            (&answer["code"], &answer["answer"]["other_addresses"]),
            (&0.into(), &Value::Array(vec![])),
            "{answer}"
        );
    }
    assert_eq!(check(&["--stand-in", "experiments", "--part", "4"]).status.code(), Some(64));
}

#[test]
fn clients_of_the_service_are_held_to_what_the_library_says() {
    let answers = experiments(&["--only", "E13"], "service");
    let [native, held] = &*answers else { panic!("{answers:?}") };
    let mib = |answer: &Value| {
        let of = |client: &str| answer["answer"][client]["mib"].as_u64().expect("MiB");
        (of("first"), of("second"), answer["answer"]["second"]["code"].as_u64())
    };
    // Each its own 1024 MiB, of which a context takes 300; then both together the container's, whatever the variables say.
    assert_eq!(mib(native), (512, 704, Some(2)), "{native}");
    assert_eq!(mib(held), (512, 8192 - 512, Some(2)), "{held}");
}

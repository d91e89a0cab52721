//! Files of the page, which are part of the program.

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};

/// A file with its name and its media type.
pub(super) struct File {
    pub(super) name: &'static str,
    kind: &'static str,
    content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// The page asks nobody but this program, and runs nothing but its own files.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! file {
    ($name:literal, $kind:expr) => {
        File { name: $name, kind: $kind, content: include_str!(concat!("page/", $name)) }
    };
}

/// All files.
pub(super) const FILES: &[File] = &[
    file!("answers.js", JAVASCRIPT),
    file!("connection.js", JAVASCRIPT),
    file!("dom.js", JAVASCRIPT),
    file!("explanation.js", JAVASCRIPT),
    file!("filter.js", JAVASCRIPT),
    file!("find.js", JAVASCRIPT),
    file!("format.js", JAVASCRIPT),
    file!("gpu.js", JAVASCRIPT),
    file!("holding.js", JAVASCRIPT),
    file!("hue.js", JAVASCRIPT),
    file!("index.html", HTML),
    file!("keys.js", JAVASCRIPT),
    file!("main.js", JAVASCRIPT),
    file!("node.js", JAVASCRIPT),
    file!("nodes.js", JAVASCRIPT),
    file!("overview.js", JAVASCRIPT),
    file!("panels.js", JAVASCRIPT),
    file!("parts.js", JAVASCRIPT),
    file!("pod.js", JAVASCRIPT),
    file!("pods.js", JAVASCRIPT),
    file!("report.js", JAVASCRIPT),
    file!("route.js", JAVASCRIPT),
    file!("rows.js", JAVASCRIPT),
    file!("selection.js", JAVASCRIPT),
    file!("shell.js", JAVASCRIPT),
    file!("state.js", JAVASCRIPT),
    file!("style.css", CSS),
    file!("summary.js", JAVASCRIPT),
    file!("usage.js", JAVASCRIPT),
    file!("views.js", JAVASCRIPT),
    file!("waiting.js", JAVASCRIPT),
];

impl IntoResponse for &'static File {
    fn into_response(self) -> Response {
        let headers = [
            (CONTENT_TYPE, self.kind),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
        ];
        (headers, self.content).into_response()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use super::*;

    #[test]
    fn every_file_of_the_page_is_served() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/view/dashboard/page");
        let entries = std::fs::read_dir(directory).expect("the page lies beside its server").map_while(Result::ok);
        let files = entries.filter(|entry| entry.path().is_file());
        let there: BTreeSet<String> = files.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        let served: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(there, served);
    }

    #[test]
    fn tests_of_the_page_pass() {
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/view/dashboard/page/tests");
        let files = std::fs::read_dir(tests).expect("the tests lie beside the page").map_while(Result::ok);
        let files = files.map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with(".test.mjs"));
        match Command::new("node").arg("--test").args(files).output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
            Err(missing) => eprintln!("skipped: node: {missing}"),
        }
    }

    /// Whatever the page shows comes from whoever may create a pod.
    #[test]
    fn page_never_makes_markup_of_text() {
        let code = FILES.iter().filter(|file| file.kind == JAVASCRIPT);
        for file in code {
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
                assert!(!file.content.contains(word), "{}: {word}", file.name);
            }
        }
    }
}

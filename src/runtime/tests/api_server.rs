//! What is logged of an API server that answers badly, or not at all.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use divvy_runtime::api_server::{ApiServer, watch_object};
use divvy_runtime::logging::LogFilter;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Config};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, fmt};

/// The log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, part: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Lines of a watch that has asked `tries` times a server that always answers so.
async fn logged(answer: String, tries: usize) -> Vec<String> {
    let log = Log::default();
    let written = log.clone();
    let lines = fmt::layer().with_writer(move || written.clone()).without_time().with_ansi(false).with_target(false);
    let filter = LogFilter::default().targets();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.with_filter(filter)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = ApiServer::new(Config::new(url.parse().unwrap())).unwrap();
    let objects = watch_object(Api::<ConfigMap>::default_namespaced(server.client), "configmaps", "x", server.requests);
    let mut objects = std::pin::pin!(objects);
    let serving = async {
        for _ in 0..tries {
            let mut connection = listener.accept().await.unwrap().0;
            assert!(connection.read(&mut [0; 4096]).await.unwrap() > 0, "a request");
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
        // The next try: what the last answer was has been logged by then.
        listener.accept().await.unwrap();
    };
    tokio::select! {
        () = serving => {}
        seen = objects.next() => panic!("nothing can be seen: {seen:?}"),
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("no {tries} tries: {}", log.text()),
    }
    log.text().lines().map(|line| line.trim().replace(&url, "URL")).collect()
}

fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn refusal_is_logged_once_with_its_message() {
    let refusal = r#"{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"configmaps \"x\" is forbidden"}"#;
    let lines = logged(answer("403 Forbidden", refusal), 3).await;
    let line =
        r#"WARN API server URL: watch configmaps/x failed: 403 Forbidden: configmaps "x" is forbidden; next try in 1s"#;
    assert_eq!(lines, [line]);
}

#[tokio::test]
async fn answers_that_are_no_objects_are_logged_as_they_are() {
    let page = "<html>\n<b>upstream is away</b>\n</html>";
    let answers =
        [answer("500 Internal Server Error", page), answer("200 OK", page), "SSH-2.0\r\n".into(), String::new()];
    let mut lines = Vec::new();
    for answer in answers {
        lines.extend(logged(answer, 1).await);
    }
    insta::assert_snapshot!(lines.join("\n"), @"
    WARN API server URL: watch configmaps/x failed: 500 without a Status: <html> <b>upstream is away</b> </html>; next try in 1s
    WARN API server URL: watch configmaps/x failed: Error deserializing response: expected value at line 1 column 1; next try in 1s
    WARN API server URL: watch configmaps/x failed: invalid HTTP version parsed; next try in 1s
    WARN API server URL: watch configmaps/x failed: connection closed before message completed; next try in 1s
    ");
}

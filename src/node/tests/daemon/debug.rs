//! The pages for those who look for a fault.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::bench::{Bench, Stderr, page, part};

impl Bench {
    async fn put(&self, path: &str, body: &'static str) -> (u16, String) {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let request = Request::put(format!("http://{}{path}", self.admin)).body(Full::new(body.into())).unwrap();
        let answer = client.request(request).await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    async fn json(&self, path: &str) -> Value {
        let (status, text) = self.admin_page(path).await.unwrap();
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }
}

#[tokio::test]
async fn debug_pages_answer_at_admin_address_alone() {
    let bench = Bench::new().await;
    for path in ["/debug/log", "/debug/threads", "/debug/state", "/debug/pprof/profile?seconds=1"] {
        assert_eq!(bench.page(path).await.unwrap().0, 404, "{path}");
        assert_eq!(bench.admin_page(path).await.unwrap().0, 200, "{path}");
    }
}

#[tokio::test]
async fn log_filter_is_set_until_the_next_restart() {
    let mut bench = Bench::new().await;
    let shown = async |bench: &Bench| bench.admin_page("/debug/log").await.unwrap().1;
    assert_eq!(shown(&bench).await, "info\n");
    assert!(!bench.log().contains(" DEBUG "), "{}", bench.log());
    let (status, now) = bench.put("/debug/log", "warn,h2=debug\n").await;
    assert_eq!((status, now.as_str()), (200, "warn,h2=debug\n# until the next restart, then info\n"));
    assert_eq!(shown(&bench).await, now);
    let said = r#"log filter changed from="info" to="warn,h2=debug""#;
    assert!(bench.log().contains(said), "{}", bench.log());
    bench.run(part("100")).await;
    bench.until_so("debug lines", async || bench.log().contains(" DEBUG ").then_some(())).await;

    for (path, body, why) in [
        ("/debug/log", "", "the body is empty: expected a filter such as info,divvy=debug\n"),
        (
            "/debug/log",
            "inof",
            "\"inof\" is not a level: expected levels (off, error, warn, info, debug, trace) by target",
        ),
        ("/debug/log?for=soon", "debug", "for=soon: "),
        ("/debug/log?for=25h", "debug", "for=25h: expected a time of up to 24h, such as 10m\n"),
    ] {
        let (status, said) = bench.put(path, body).await;
        assert!(status == 400 && said.starts_with(why), "{path} {body:?}: {status} {said}");
    }
    assert_eq!(shown(&bench).await, now, "a refused filter changes nothing");

    bench.signal("TERM").await;
    bench.ended().await;
    bench.start(Stderr::Log).await;
    bench.ready().await;
    assert_eq!(shown(&bench).await, "info\n");
}

#[tokio::test]
async fn log_filter_with_a_time_ends_by_itself() {
    let bench = Bench::new().await;
    let (status, now) = bench.put("/debug/log?for=10m", "debug").await;
    assert!(status == 200 && now.starts_with("debug\n# for another 9m 5") && now.ends_with("s, then info\n"), "{now}");
    bench.put("/debug/log?for=1s", "off").await;
    let shown = async || bench.admin_page("/debug/log").await.filter(|(_, shown)| shown == "info\n");
    bench.until_so("the configured filter", shown).await;
    assert!(bench.log().contains(r#"log filter changed from="off" to="info""#), "{}", bench.log());
    // The end of a filter that is gone.
    bench.put("/debug/log?for=1s", "off").await;
    bench.put("/debug/log", "trace").await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(bench.admin_page("/debug/log").await.unwrap().1, "trace\n# until the next restart, then info\n");
}

#[tokio::test]
async fn state_shows_what_the_daemon_decides_by() {
    let bench = Bench::new().await;
    let uid = bench.run(part("100")).await;
    let state = bench.json("/debug/state").await;
    let allocator = &state["allocator"];
    assert_eq!(allocator["ledger"]["pods"][0]["pod"]["uid"], json!(uid), "{state:#}");
    assert_eq!(allocator["ledger"]["pods"][0]["containers"][0]["holding"]["parts"][0]["share"]["memoryMi"], 100);
    assert!(allocator["ledger"]["revision"].as_u64().unwrap() > 0 && allocator["ledger"]["journalWritable"] == true);
    let served = &allocator["admission"]["order"]["served"];
    assert_eq!(served[0][1], "main", "{served}");
    assert_eq!(allocator["inventory"]["cards"][0]["model"], "NVIDIA L4");
    assert_eq!((&state["registration"], &state["podListProblem"]), (&json!("registered"), &Value::Null));
    assert_eq!(state["containers"]["strategies"]["active"], json!(["envvar"]));
    let token = std::fs::read_to_string(bench.kubelet.token_file()).unwrap();
    assert!(!state.to_string().contains(token.trim()));
}

#[tokio::test]
async fn threads_shows_threads_tasks_and_the_runtime() {
    let bench = Bench::new().await;
    let shown = bench.json("/debug/threads").await;
    let threads = shown["threads"].as_array().unwrap();
    assert!(threads.iter().any(|thread| thread["name"] == "divvy-node" && thread["cpuSeconds"].is_f64()), "{shown:#}");
    let admin = shown["tasks"].as_array().unwrap().iter().find(|task| task["name"] == "admin").unwrap();
    assert!(admin["polls"].as_u64().unwrap() > 0, "{admin}");
    assert_eq!(shown["runtime"]["workers"].as_array().unwrap().len(), 1);
    assert!(shown["runtime"]["tasks"].as_u64().unwrap() >= 8, "{shown:#}");
}

/// A profile that is being taken.
async fn begun(bench: &Bench, seconds: u32) -> JoinHandle<Option<(u16, String)>> {
    loop {
        let address = bench.admin;
        let profile =
            tokio::spawn(async move { page(address, &format!("/debug/pprof/profile?seconds={seconds}")).await });
        let (status, said) = bench.admin_page("/debug/pprof/profile?seconds=1").await.unwrap();
        // Otherwise that one came first.
        if status == 409 {
            assert_eq!(said, "another profile is being taken: ask again later\n");
            return profile;
        }
    }
}

#[tokio::test]
async fn cpu_profile_names_functions_and_is_taken_alone() {
    let bench = Bench::new().await;
    for seconds in ["0", "121", "-1", "many"] {
        let (status, said) = bench.admin_page(&format!("/debug/pprof/profile?seconds={seconds}")).await.unwrap();
        assert_eq!(status, 400, "{seconds}: {said}");
    }
    let profile = begun(&bench, 4).await;
    while !profile.is_finished() {
        bench.json("/debug/state").await;
    }
    let (status, profile) = profile.await.unwrap().unwrap();
    // Names stand in it as they are; `go tool pprof` reads the rest.
    assert!(status == 200 && profile.contains("cpu") && profile.contains("nanoseconds"), "{status}");
    assert!(profile.contains("divvy_node::"), "{} bytes without a function of ours", profile.len());
    // The process is as it was: a signal of the profiler's timer would end it.
    let (status, _) = bench.admin_page("/debug/pprof/profile?seconds=1").await.unwrap();
    assert_eq!(status, 200);
}

#[tokio::test]
async fn daemon_stops_during_a_profile() {
    let mut bench = Bench::new().await;
    let profile = begun(&bench, 120).await;
    bench.signal("TERM").await;
    assert_eq!(bench.ended().await.code(), Some(0));
    assert_eq!(profile.await.unwrap().unwrap().0, 200);
}

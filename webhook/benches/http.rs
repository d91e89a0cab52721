//! What our answers add to the calls: `/filter`, and `/prioritize` with the names that it answers, over a kept connection ÷
//! a handler beside them that echoes the same names.
//!
//! ```text
//! cargo bench -p divvy-webhook --bench http
//! ```

#[allow(dead_code, reason = "the other benchmarks use the rest")]
mod cluster;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use cluster::{Cluster, Pods, pod};
use divvy_webhook::extender::Extender;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;

const NODES: usize = 5_000;
const ROUNDS: usize = 3;

/// What is read and written of the scheduler's arguments, as small as can be.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Names {
    node_names: Vec<String>,
}

fn main() {
    let is_test = std::env::args().any(|arg| arg == "--test");
    let (nodes, calls, few) = if is_test { (50, 20, 40) } else { (NODES, 1_000, 500) };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for (names, calls) in [(few, calls), (nodes, calls / 4)] {
        runtime.block_on(compare(Cluster::new(nodes, false), names, calls));
    }
}

async fn compare(mut cluster: Cluster, names: usize, calls: usize) {
    let extender = Arc::new(Extender::new(Arc::clone(&cluster.index), 16));
    let router = Router::new()
        .route("/filter", post(filter))
        .route("/prioritize", post(prioritize))
        .route("/echo", post(echo))
        .with_state(extender);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = router.layer(DefaultBodyLimit::disable());
    let server = tokio::spawn(async { axum::serve(listener, router).await });
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    for round in 0..ROUNDS {
        let (mut ours, mut echoes) = (Vec::new(), Vec::new());
        for call in 0..calls {
            let from = cluster.rng.random_range(0..cluster.names.len());
            let asked: Vec<String> = cluster.names.iter().cycle().skip(from).take(names).cloned().collect();
            let pod = pod(round * calls + call, Pods::New);
            let body = |names: &[String]| {
                let body = json!({"Pod": pod, "Nodes": null, "NodeNames": names});
                Bytes::from(serde_json::to_vec(&body).expect("JSON"))
            };
            let all = body(&asked);
            let (filtered, answer) = timed(ask(&client, format!("http://{address}/filter"), all.clone())).await;
            let kept = body(&serde_json::from_slice::<Names>(&answer).expect("our answer").node_names);
            let (rated, _) = timed(ask(&client, format!("http://{address}/prioritize"), kept.clone())).await;
            ours.push(filtered + rated);
            let mut of_both = Duration::ZERO;
            for body in [all, kept] {
                of_both += timed(ask(&client, format!("http://{address}/echo"), body)).await.0;
            }
            echoes.push(of_both);
        }
        let [ours, echoes] = [ours, echoes].map(|mut times| {
            times.sort_unstable();
            [times[calls / 2], times[calls * 99 / 100]].map(|time| time.as_micros())
        });
        let ratio = |at: usize| {
            f64::from(u32::try_from(ours[at]).unwrap_or(u32::MAX)) / f64::from(u32::try_from(echoes[at]).unwrap_or(1))
        };
        println!(
            "{names} names of {} nodes: filter and prioritize p50 {} µs, p99 {}; echo p50 {}, p99 {}: {:.2} and {:.2}   ≤ 2",
            cluster.names.len(),
            ours[0],
            ours[1],
            echoes[0],
            echoes[1],
            ratio(0),
            ratio(1)
        );
    }
    server.abort();
}

async fn filter(State(extender): State<Arc<Extender>>, body: Bytes) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], extender.filter(&body).expect("a body of ours"))
}

async fn prioritize(State(extender): State<Arc<Extender>>, body: Bytes) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], extender.prioritize(&body).expect("a body of ours"))
}

async fn echo(body: Bytes) -> impl IntoResponse {
    let names: Names = serde_json::from_slice(&body).expect("a body of ours");
    ([(CONTENT_TYPE, "application/json")], serde_json::to_vec(&names).expect("JSON"))
}

async fn ask(client: &Client<HttpConnector, Full<Bytes>>, url: String, body: Bytes) -> Bytes {
    let request = Request::post(url).header(CONTENT_TYPE, "application/json").body(Full::new(body)).expect("a request");
    let answer = client.request(request).await.expect("an answer");
    answer.into_body().collect().await.expect("a body").to_bytes()
}

async fn timed<T>(call: impl Future<Output = T>) -> (Duration, T) {
    let start = Instant::now();
    let answer = call.await;
    (start.elapsed(), answer)
}

//! Clients on the pod network that nobody has invited: silent connections, slow and large bodies, invented tokens.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::bench::{Bench, about, pod};
use crate::replica::Replica;
use crate::{until, within};

/// Connects from an address of its own, as a pod does.
async fn connect(stranger: u16, to: SocketAddr) -> TcpStream {
    let [high, low] = stranger.to_be_bytes();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::new(127, 9, high, low), 0).into()).unwrap();
    within("a connection", socket.connect(to)).await.unwrap()
}

/// Whether the other side has closed it.
fn is_closed(stream: &TcpStream) -> bool {
    match stream.try_read(&mut [0; 64]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

/// Reviews, the scheduler and users are all answered, over connections new and old.
async fn serves_everybody(bench: &Bench, replica: &Replica, name: &str) {
    let made = bench.pod(&pod(name, 1, 0)).await;
    let https = bench.https();
    let answer = https.post(replica.extender, "/filter", about(&made, &["n1"]).to_string()).await.json();
    assert_eq!(answer["NodeNames"], json!(["n1"]));
    bench.explain(replica, &pod("asked", 1, 0)).await;
    replica.ready().await;
}

#[tokio::test]
async fn silent_connections_starve_nobody_and_are_closed() {
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let replica = bench.alone(&json!({})).await;
    serves_everybody(&bench, &replica, "before").await;
    let mut silent = Vec::new();
    for number in 0..700 {
        for to in [replica.address, replica.extender, replica.queries] {
            silent.push(connect(number, to).await);
        }
    }
    serves_everybody(&bench, &replica, "during").await;
    let closed = async || silent.iter().all(is_closed).then_some(());
    until("the end of all silent connections", closed).await;
    serves_everybody(&bench, &replica, "after").await;
}

#[tokio::test]
async fn connections_of_one_address_take_no_place_of_others() {
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let replica = bench.alone(&json!({})).await;
    let neighbour = connect(7, replica.address).await;
    let mut greedy = Vec::new();
    for _ in 0..400 {
        greedy.push(connect(9, replica.address).await);
    }
    let closed = async || (greedy.iter().filter(|stream| is_closed(stream)).count() >= 400 - 256).then_some(());
    until("the end of connections beyond 256 of one address", closed).await;
    assert!(!is_closed(&neighbour));
    serves_everybody(&bench, &replica, "during").await;
}

#[tokio::test]
async fn bodies_that_never_come_hold_up_nobody() {
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let replica = bench.alone(&json!({})).await;
    let mut slow = Vec::new();
    for path in ["/mutate", "/validate"].repeat(20) {
        let mut connection = bench.https().open(replica.address).await;
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n{{");
        connection.write_all(head.as_bytes()).await.unwrap();
        connection.flush().await.unwrap();
        slow.push(connection);
    }
    serves_everybody(&bench, &replica, "during").await;
    for mut connection in slow {
        drop(within("its end", connection.read_to_end(&mut Vec::new())).await);
    }
}

#[tokio::test]
async fn stranger_who_tries_tokens_is_told_to_wait() {
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let replica = bench.alone(&json!({})).await;
    let https = bench.https();
    let mut codes = Vec::new();
    for number in 0..30 {
        let token = format!("Bearer guess-{number}");
        let headers = [("authorization", &*token)];
        codes.push(https.ask(Method::GET, (replica.queries, "/inspect"), &headers, "").await.code.as_u16());
    }
    assert_eq!((&codes[..10], &codes[10..]), (&[401; 10][..], &[429; 20][..]));
    assert_eq!(bench.asked("create", "/tokenreviews"), 10);
}

/// Calls of each kind in a round.
const CALLS: usize = 300;
const ROUNDS: usize = 5;
/// Silent connections at a time, each from an address of its own.
const SILENT: u16 = 2_000;
/// Large bodies a second.
const BODIES: u64 = 50;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a figure of the release profile: hack/bench webhook"]
async fn calls_among_strangers_take_little_longer() {
    let bench = Bench::with_nodes(&[("n1", 8), ("n2", 8), ("n3", 8)]).await;
    let replica = bench.alone(&json!({ "logLevel": "info" })).await;
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        let quiet = measure(&bench, &replica).await;
        let strangers = strangers(&bench, &replica);
        let busy = measure(&bench, &replica).await;
        drop(strangers);
        for (at, verb) in ["review", "filter"].into_iter().enumerate() {
            let [[q50, q99], [b50, b99]] = [quiet[at], busy[at]].map(|of| of.map(|time| time.as_micros()));
            println!("round {round}: {verb}: quiet p50 {q50} µs, p99 {q99}; among strangers p50 {b50}, p99 {b99}");
            ratios[at].push(busy[at][1].as_secs_f64() / quiet[at][1].as_secs_f64());
        }
    }
    for (verb, ratios) in ["review", "filter"].into_iter().zip(&mut ratios) {
        ratios.sort_by(f64::total_cmp);
        println!(
            "{verb}: p99 among strangers ÷ quiet: median {:.2} ({:.2} to {:.2})   ≤ 2",
            ratios[ROUNDS / 2],
            ratios[0],
            ratios[ROUNDS - 1]
        );
    }
    replica.ready().await;
}

/// p50 and p99 of reviews and of filters.
async fn measure(bench: &Bench, replica: &Replica) -> [[Duration; 2]; 2] {
    let https = bench.https();
    let object = pod("a", 8, 0);
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "operation": "CREATE",
            "namespace": "default", "object": object,
        },
    });
    let calls = [
        (replica.address, "/mutate", review.to_string()),
        (replica.extender, "/filter", about(&object, &["n1", "n2", "n3"]).to_string()),
    ];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..CALLS {
        for ((to, path, body), times) in calls.iter().zip(&mut times) {
            let start = Instant::now();
            assert_eq!(https.post(*to, path, body.clone()).await.code.as_u16(), 200);
            times.push(start.elapsed());
            // As far apart as calls of a busy cluster: a hundred pods a second.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        [times[CALLS / 2], times[CALLS * 99 / 100]]
    })
}

/// Silent connections, renewed as they are closed, and large bodies, until this is dropped.
fn strangers(bench: &Bench, replica: &Replica) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..SILENT {
        let to = [replica.address, replica.extender, replica.queries][usize::from(number % 3)];
        tasks.spawn(async move {
            loop {
                let mut stream = connect(number, to).await;
                drop(stream.read(&mut [0; 1]).await);
                // A client that hammers is one for the network's limits: this one is silent.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
    let (https, to) = (Arc::new(bench.https()), replica.address);
    tasks.spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(1000 / BODIES));
        let mut bodies = tokio::task::JoinSet::new();
        for number in (SILENT..SILENT + 1000).cycle() {
            ticks.tick().await;
            let https = Arc::clone(&https);
            bodies.spawn(async move {
                let Ok(mut stream) = https.over(connect(number, to).await).await else { return };
                let head = "POST /mutate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1048576\r\n\r\n";
                let sent = stream.write_all(head.as_bytes()).await.is_ok()
                    && stream.write_all(&vec![b' '; 1 << 20]).await.is_ok();
                drop(if sent { stream.read_to_end(&mut Vec::new()).await } else { Ok(0) });
            });
        }
    });
    tasks
}

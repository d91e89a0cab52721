//! Clients on the pod network that nobody has invited: silent connections, slow and large bodies, invented tokens.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};

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

/// Reviews of a pod, in so many bytes.
fn reviews() -> [String; 2] {
    [0, 100 << 10].map(|bytes| {
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "annotations": { "x": "y".repeat(bytes) } },
            "spec": { "containers": [] },
        });
        let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
        let request = json!({ "uid": "u", "kind": kind, "operation": "CREATE", "object": object });
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request }).to_string()
    })
}

#[tokio::test]
async fn large_bodies_that_are_slow_keep_out_no_review() {
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let replica = bench.alone(&json!({})).await;
    let is_allowed = async |review: &str| {
        let answer = bench.https().post(replica.address, "/mutate", review.to_owned()).await;
        assert_eq!(answer.json()["response"]["allowed"], true, "{}", answer.text());
    };
    let (head, bytes) = ("POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n", vec![b' '; 7_900_000]);
    let mut announced = Vec::new();
    for stranger in 0..8 {
        let mut connection = bench.https().over(connect(stranger, replica.address).await).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        connection.flush().await.unwrap();
        announced.push(connection);
    }
    for review in reviews() {
        is_allowed(&review).await;
    }
    assert!(announced.iter().all(|connection| !is_closed(connection.get_ref().0)), "nothing was waited for");
    // Bodies that come but for their ends, of more bytes than may be in flight.
    let mut ends = Vec::new();
    for stranger in 8..20 {
        let mut connection = bench.https().over(connect(stranger, replica.address).await).await.unwrap();
        let body = [head.as_bytes(), &bytes].concat();
        ends.push(tokio::spawn(async move {
            let _refused = connection.write_all(&body).await;
            let mut answer = String::new();
            let _closed = connection.read_to_string(&mut answer).await;
            answer
        }));
    }
    let answers = futures::future::join_all(ends);
    for review in reviews().iter().cycle().take(6) {
        is_allowed(review).await;
    }
    let answers = within("their ends", answers).await;
    let given_up = |answer: &Result<String, _>| answer.as_ref().is_ok_and(|answer| answer.contains("took longer"));
    assert!(answers.iter().any(given_up), "{answers:?}");
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
    let [replica, other] = bench.pair(&json!({ "logLevel": "info" })).await;
    let (mut elsewhere, mut here) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..ROUNDS {
        let quiet = measure(&bench, &replica).await;
        // The machine's part in it: strangers who trouble somebody else on it.
        let strangers_elsewhere = strangers(&bench, &other);
        let beside = measure(&bench, &replica).await;
        drop(strangers_elsewhere);
        let strangers_here = strangers(&bench, &replica);
        let among = measure(&bench, &replica).await;
        drop(strangers_here);
        for (at, verb) in ["review", "filter"].into_iter().enumerate() {
            let [quiet, beside, among] = [quiet[at], beside[at], among[at]];
            println!(
                "round {round}: {verb}: p50, p99 quiet {quiet:.1?}, strangers elsewhere {beside:.1?}, here {among:.1?}"
            );
            elsewhere[at].push(beside[1].as_secs_f64() / quiet[1].as_secs_f64());
            here[at].push(among[1].as_secs_f64() / quiet[1].as_secs_f64());
        }
    }
    for (at, verb) in ["review", "filter"].into_iter().enumerate() {
        for (place, ratios) in [("elsewhere", &mut elsewhere[at]), ("here", &mut here[at])] {
            ratios.sort_by(f64::total_cmp);
            let (median, least, most) = (ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
            println!("{verb}: p99 with strangers {place} ÷ quiet: median {median:.2} ({least:.2} to {most:.2})");
        }
    }
    println!("here: ≤ 2");
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
            match https.try_post(*to, path, body.clone()).await {
                Ok(status) => {
                    assert_eq!(status, StatusCode::OK);
                    times.push(start.elapsed());
                }
                Err(refused) => println!("{path}: {refused}"),
            }
            // As far apart as calls of a busy cluster: a hundred pods a second.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    times.map(|mut times| {
        times.sort_unstable();
        [times[times.len() / 2], times[times.len() * 99 / 100]]
    })
}

/// Machines of strangers. They have processors of their own: what they do themselves takes none from those that are measured.
struct Strangers(Option<Runtime>);

impl Drop for Strangers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Silent connections, renewed as they are closed, and large bodies, until this is dropped.
fn strangers(bench: &Bench, replica: &Replica) -> Strangers {
    let least = || assert_eq!(rustix::process::nice(19), Ok(19));
    let tasks = Builder::new_multi_thread().worker_threads(1).enable_all().on_thread_start(least).build().unwrap();
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
    Strangers(Some(tasks))
}

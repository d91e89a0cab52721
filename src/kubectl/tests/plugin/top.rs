//! `kubectl divvy top`, against daemons that the API-server stand-in passes questions on to.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::{Bench, CARD, Ended, PROGRAM, ended};

/// The port of every daemon.
const PORT: u16 = 9402;

impl Bench {
    /// A daemon's pod on a node, at an address of its own that answers so.
    fn daemon(&self, node: &str, address: &str, status: &'static str, body: &Value) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("divvy-node-{node}"), "namespace": "divvy-system",
                "labels": { "app.kubernetes.io/name": "divvy-node" },
            },
            "spec": { "nodeName": node, "containers": [{ "name": "divvy-node", "image": "i" }] },
        });
        // The second daemon finds it there.
        let _made = self
            .server
            .create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "divvy-system" } }));
        self.server.create(&pod).unwrap();
        let name = format!("divvy-node-{node}");
        self.server.edit("Pod", "divvy-system", &name, |pod| pod["status"]["podIP"] = json!(address)).unwrap();
        let (listener, body) = (TcpListener::bind((address, PORT)).unwrap(), body.to_string());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut head = [0; 4096];
                let length = stream.read(&mut head).unwrap_or(0);
                let is_usage = head[..length].starts_with(b"GET /usage HTTP/1.1");
                let (status, body) = if is_usage { (status, body.as_str()) } else { ("404 Not Found", "") };
                let length = body.len();
                drop(write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                ));
            }
        });
    }

    async fn top(&self, arguments: &str) -> Ended {
        ended(self.command(PROGRAM, &format!("top {arguments}"))).await
    }
}

fn usage(namespace: &str, pod: &str, busy: u32) -> Value {
    json!({
        "node": "what it calls itself",
        "containers": [{
            "podUid": "u", "namespace": namespace, "pod": pod, "container": "main", "card": CARD,
            "memoryMi": 8192, "cores": 30, "driverBytes": 4_u64 << 30, "overheadBytes": 1,
            "books": {
                "usedBytes": 3_u64 << 30, "busyPercent": busy, "busyNs": 1, "throttledNs": 1,
                "launches": 1, "outOfMemory": 0, "unhooked": 0, "processes": 2,
            },
        }],
        "findings": [{
            "kind": "foreign", "card": CARD, "pids": [7], "bytes": 1, "seconds": 11, "message": "GPU is used by others",
        }],
    })
}

/// Two addresses that no other test has.
fn addresses() -> [String; 2] {
    let [a, b, c] = rand::random::<[u8; 3]>();
    [1, 2].map(|last| format!("127.{}.{b}.{}", a.max(1), (c & 0xfc) | last))
}

#[tokio::test]
async fn each_daemon_is_queried_through_the_api_server() {
    let bench = Bench::new().await;
    let [first, second] = addresses();
    bench.daemon("node-1", &first, "200 OK", &usage("team-a", "serve-0", 29));
    bench.daemon("node-2", &second, "200 OK", &usage("team-b", "train-0", 55));
    let Ended { code, out, err } = bench.top("").await;
    assert_eq!(code, Some(0), "{err}");
    insta::assert_snapshot!(format!("{out}\n{err}"));
    assert_eq!(bench.top("node-2 --no-headers").await.out.lines().count(), 1);
    let json: Value = serde_json::from_str(&bench.top("-n team-b -o json").await.out).unwrap();
    assert_eq!((&json["nodes"][0]["containers"], &json["nodes"][1]["node"]), (&json!([]), &json!("node-2")));
    let yaml: Value = serde_saphyr::from_str(&bench.top("-n team-b -o yaml").await.out).unwrap();
    assert_eq!(yaml, json);
}

#[tokio::test]
async fn unreachable_daemons_are_reported_beside_the_others() {
    let bench = Bench::new().await;
    let [first, second] = addresses();
    bench.daemon("node-1", &first, "200 OK", &usage("team-a", "serve-0", 29));
    bench.daemon("node-2", &second, "404 Not Found", &json!({}));
    let Ended { code, out, err } = bench.top("--no-headers node-1 node-2 node-3").await;
    assert_eq!((code, out.lines().count()), (Some(1), 1), "{err}");
    assert!(err.contains("error: node node-3: no pod of divvy-node is there in namespace divvy-system\n"), "{err}");
    assert!(err.contains("error: node node-2: "), "{err}");
}

#[tokio::test]
async fn missing_permission_and_missing_daemons_are_reported() {
    let bench = Bench::new().await;
    let none = bench.top("").await;
    assert_eq!((none.code, none.out.as_str()), (Some(1), ""));
    assert!(none.err.contains("no pod of divvy-node in namespace divvy-system"), "{}", none.err);
    let [first, _] = addresses();
    bench.daemon("node-1", &first, "200 OK", &usage("team-a", "serve-0", 29));
    bench.server.fail("get", "/proxy/usage", 1, http::StatusCode::FORBIDDEN);
    let said = bench.top("").await;
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("the right to get pods/proxy in namespace divvy-system"), "{}", said.err);
    bench.server.fail("list", "/pods", 1, http::StatusCode::FORBIDDEN);
    let said = bench.top("").await.err;
    assert!(said.contains("the right to list pods in namespace divvy-system"), "{said}");
}

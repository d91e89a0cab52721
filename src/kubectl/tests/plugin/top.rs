//! `kubectl divvy top`, against daemons that the API-server stand-in forwards connections to.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::{Bench, CARD, Ended, PROGRAM, ended};

/// The port of every daemon.
const PORT: u16 = 9404;

impl Bench {
    /// A daemon's pod on a node, at an address of its own. Nothing listens there.
    fn pod_of_daemon(&self, node: &str, address: &str) {
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
    }

    /// The same, and what answers there.
    fn daemon(&self, node: &str, address: &str, answer: String) {
        self.pod_of_daemon(node, address);
        let listener = TcpListener::bind((address, PORT)).unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut head = [0; 4096];
                let length = stream.read(&mut head).unwrap_or(0);
                let is_usage = head[..length].starts_with(b"GET /usage HTTP/1.1");
                let answer = if is_usage { &answer } else { "HTTP/1.1 400 Bad Request\r\n\r\n" };
                drop(stream.write_all(answer.as_bytes()));
            }
        });
    }

    async fn top(&self, arguments: &str) -> Ended {
        ended(self.command(PROGRAM, &format!("top {arguments}"))).await
    }
}

/// What a daemon answers.
fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn usage(namespace: &str, pod: &str, busy: u32) -> String {
    let usage = json!({
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
    });
    ok(&usage.to_string())
}

/// Addresses that no other test has.
pub(crate) fn addresses<const N: usize>() -> [String; N] {
    let [a, b, c] = rand::random::<[u8; 3]>();
    std::array::from_fn(|last| format!("127.{}.{b}.{}", a.max(1), (usize::from(c) & 0xf0) | (last + 1)))
}

#[tokio::test]
async fn each_daemon_is_queried_through_the_api_server() {
    let bench = Bench::new().await;
    let [first, second] = addresses();
    bench.daemon("node-1", &first, usage("team-a", "serve-0", 29));
    bench.daemon("node-2", &second, usage("team-b", "train-0", 55));
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
async fn violation_of_a_kind_that_only_the_daemon_knows_is_shown() {
    let bench = Bench::new().await;
    let [first] = addresses();
    // As long as the kind that it replaces, for the header's sake.
    bench.daemon("node-1", &first, usage("team-a", "serve-0", 29).replace("foreign", "unheard"));
    let Ended { code, out, err } = bench.top("-o json").await;
    assert_eq!((code, err.as_str()), (Some(0), "warning: node node-1: GPU is used by others\n"));
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["nodes"][0]["findings"][0]["kind"], "unheard");
}

#[tokio::test]
async fn unreachable_daemons_are_reported_beside_the_others() {
    let bench = Bench::new().await;
    let [one, old, other, garbage, cut] = addresses();
    bench.daemon("node-1", &one, usage("team-a", "serve-0", 29));
    bench.pod_of_daemon("old", &old);
    bench.daemon("other", &other, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned());
    bench.daemon("garbage", &garbage, ok("<html>"));
    bench.daemon("cut", &cut, ok(&"[".repeat(99_999)).replace("99999", "100000"));
    let Ended { code, out, err } = bench.top("--no-headers node-1 old other garbage cut absent").await;
    assert_eq!((code, out.lines().count()), (Some(1), 1), "{err}");
    let said = |node: &str| {
        let start = format!("error: node {node}: ");
        err.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{start}{err}"))
    };
    assert_eq!(said("absent"), "no pod of divvy-node is there in namespace divvy-system");
    let refused = said("old");
    assert!(
        refused.starts_with("error: port 9404 of pod divvy-node-old can't be reached: error forwarding port 9404"),
        "{err}"
    );
    let remedy = "connection refused: it is another version, or its adminAddress has another port";
    assert!(refused.ends_with(remedy), "{err}");
    assert_eq!(said("other"), "error: port 9404 of pod divvy-node-other answers 404 Not Found");
    let start = "error: port 9404 of pod divvy-node-garbage answers what this version can't read: expected value";
    assert!(said("garbage").starts_with(start), "{err}");
    let start = "error: port 9404 of pod divvy-node-cut gives no complete answer: ";
    assert!(said("cut").starts_with(start), "{err}");
}

#[tokio::test]
async fn daemon_that_does_not_answer_is_left_after_the_timeout() {
    let bench = Bench::new().await;
    let [silent, one] = addresses();
    bench.pod_of_daemon("silent", &silent);
    bench.daemon("node-1", &one, usage("team-a", "serve-0", 29));
    // The kernel takes the connection, and nobody else does.
    let _listener = TcpListener::bind((silent.as_str(), PORT)).unwrap();
    let Ended { code, out, err } = bench.top("--no-headers --request-timeout 3s").await;
    assert_eq!((code, out.lines().count()), (Some(1), 1), "{err}");
    assert!(err.contains("error: node silent: Unable to connect to the server https://"), "{err}");
    assert!(err.contains(": no answer within 3s\n"), "{err}");
}

#[tokio::test]
async fn missing_permission_and_missing_daemons_are_reported() {
    let bench = Bench::new().await;
    let none = bench.top("").await;
    assert_eq!((none.code, none.out.as_str()), (Some(1), ""));
    assert!(none.err.contains("no pod of divvy-node in namespace divvy-system"), "{}", none.err);
    let [first] = addresses();
    bench.daemon("node-1", &first, usage("team-a", "serve-0", 29));
    bench.server.fail("get", "/portforward", 1, http::StatusCode::NOT_FOUND);
    let gone = bench.top("").await;
    let said = "error: node node-1: Error from server (NotFound): pods \"divvy-node-node-1\" not found\n";
    assert_eq!((gone.code, gone.err.as_str()), (Some(1), said));
    bench.server.fail("list", "/pods", 1, http::StatusCode::FORBIDDEN);
    let said = bench.top("").await.err;
    assert!(said.contains("the right to list pods in namespace divvy-system"), "{said}");
}

#[tokio::test]
async fn ports_are_forwarded_for_those_who_may_get_and_create() {
    let bench = Bench::new().await;
    let [first] = addresses();
    bench.daemon("node-1", &first, usage("team-a", "serve-0", 29));
    bench.server.guard();
    let rights = |verbs: &[&str]| {
        json!([
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] },
            { "apiGroups": [""], "resources": ["pods/portforward"], "verbs": verbs },
        ])
    };
    let own = |kind: &str, rest: Value| {
        let mut object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": { "name": "top", "namespace": "divvy-system" },
        });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        bench.server.create(&object).unwrap();
    };
    own("Role", json!({ "rules": rights(&[]) }));
    own(
        "RoleBinding",
        json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "top" },
            "subjects": [{ "kind": "User", "name": "admin" }],
        }),
    );
    let remedy = "Ask for a Role with the right to get and create pods/portforward in namespace divvy-system";
    // A server before Kubernetes 1.35 needs no more than `get`, and this one answers as a newer one.
    for (verbs, words) in
        [(&[][..], "User \"admin\" cannot get resource \"pods/portforward\""), (&["get"], "is forbidden. Ask")]
    {
        bench.server.edit("Role", "divvy-system", "top", |role| role["rules"] = rights(verbs)).unwrap();
        let said = bench.top("").await;
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.err.contains(words) && said.err.contains(remedy), "{said:?}");
    }
    bench.server.edit("Role", "divvy-system", "top", |role| role["rules"] = rights(&["get", "create"])).unwrap();
    assert_eq!(bench.top("").await.code, Some(0));
}

//! Gated pods: what the leader writes of them, in which order, and what becomes of writes that fail.

use divvy_api::annotation::{self, Planned};
use divvy_api::names::annotation::PLANNED;
use divvy_api::names::{GATE, condition};
use divvy_index::pod_group::{self, PodGroupApi};
use fake_apiserver::Request;
use http::StatusCode;
use serde_json::{Value, json};

use crate::bench::{Bench, pod};
use crate::replica::Replica;
use crate::{until, within};

const NOTE: &str = "example.com/note";

fn gates() -> Value {
    json!({ "scheduling": "gates" })
}

fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

fn plan(pod: &Value) -> Option<Planned> {
    annotation::decode(pod["metadata"]["annotations"][PLANNED].as_str()?).ok()
}

/// The node of a pod that is free to go there.
fn freed(pod: &Value) -> Option<String> {
    let node = pod["status"]["nominatedNodeName"].as_str().filter(|_| !is_gated(pod))?;
    assert_eq!(plan(pod)?.node, node);
    Some(node.to_owned())
}

/// A pod past the webhook, with the gate that it would get.
fn gated(name: &str, gib: u64) -> Value {
    let mut gated = pod(name, gib, 0);
    gated["spec"]["schedulingGates"] = json!([{ "name": GATE }]);
    gated
}

fn without_gpus(name: &str) -> Value {
    let mut gated = gated(name, 1);
    gated["spec"]["containers"][0]["resources"] = json!({});
    gated
}

// === impl Bench ===

impl Bench {
    async fn is_freed(&self, name: &str) -> String {
        let freed = self.server.wait_for(|view| freed(&view.get("Pod", "default", name)?));
        within(&format!("{name} is nominated and has no gate"), freed).await
    }

    /// Waits until the pod is as it is to be.
    async fn pod_is(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let found = self.server.wait_for(|view| view.get("Pod", "default", name).filter(&is));
        within(&format!("{name} {what}"), found).await
    }

    fn note(&self, name: &str, text: &str) {
        self.server.edit("Pod", "default", name, |pod| pod["metadata"]["annotations"][NOTE] = text.into()).unwrap();
    }

    /// The plans' writes of a pod so far: what of it, and the answer.
    fn writes(&self, name: &str) -> Vec<(String, u16)> {
        let of_pod = |request: &&Request| request.verb == "patch" && request.path.contains(&format!("/pods/{name}"));
        let requests = self.server.requests();
        requests.iter().filter(of_pod).map(|request| (request.subresource.clone(), request.code)).collect()
    }

    async fn gating(&self) -> Replica {
        self.alone(&gates()).await
    }
}

fn writes(all: &[(&str, u16)]) -> Vec<(String, u16)> {
    all.iter().map(|(of, code)| ((*of).to_owned(), *code)).collect()
}

#[tokio::test]
async fn pod_is_nominated_and_then_freed_with_its_plan() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replica = bench.gating().await;
    let (mut feed, _) = bench.server.feed("Pod");
    assert!(is_gated(&bench.pod(&pod("a", 8, 0)).await));
    assert_eq!(bench.is_freed("a").await, "n1");
    let mut states = Vec::new();
    while states.last() != Some(&(true, false, true)) {
        let news = within("changes of the pod", feed.next()).await;
        let state = |pod: &Value| (pod["status"]["nominatedNodeName"].is_string(), is_gated(pod), plan(pod).is_some());
        states.extend(news.iter().filter_map(|news| news.after.as_deref().map(state)));
    }
    assert_eq!(states, [(false, true, false), (true, true, false), (true, false, true)]);
    assert_eq!(bench.writes("a"), writes(&[("status", 200), ("", 200)]));
    let pod = bench.server.get("Pod", "default", "a").unwrap();
    let placed = pod["status"]["conditions"].as_array().unwrap().iter().find(|one| one["type"] == condition::PLACED);
    assert_eq!(placed.unwrap()["status"], "True");
}

#[tokio::test]
async fn pod_that_others_change_between_the_writes_is_written_again() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replica = bench.gating().await;
    bench.server.be_late("patch", "/pods/a/status", 1);
    bench.pod(&pod("a", 8, 0)).await;
    bench.pod_is("a", "is nominated", |pod| pod["status"]["nominatedNodeName"].is_string()).await;
    bench.note("a", "theirs");
    bench.server.answer_late();
    bench.is_freed("a").await;
    assert_eq!(bench.writes("a"), writes(&[("status", 200), ("", 409), ("status", 200), ("", 200)]));
    let freed = bench.server.get("Pod", "default", "a").unwrap();
    assert_eq!(freed["metadata"]["annotations"][NOTE], "theirs");
    // Until others leave it alone for once.
    bench.server.fail("patch", "/pods/b", 5, StatusCode::CONFLICT);
    bench.pod(&pod("b", 8, 0)).await;
    bench.is_freed("b").await;
}

#[tokio::test]
async fn namesake_of_a_planned_pod_gets_a_plan_of_its_own() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replica = bench.gating().await;
    bench.server.be_late("patch", "/pods/a/status", 1);
    bench.pod(&pod("a", 0, 0)).await;
    bench.pod_is("a", "is nominated", |pod| pod["status"]["nominatedNodeName"].is_string()).await;
    bench.server.delete("Pod", "default", "a", Some(0)).unwrap();
    let (mut feed, _) = bench.server.feed("Pod");
    let second = bench.pod(&pod("a", 8, 0)).await;
    bench.server.answer_late();
    bench.is_freed("a").await;
    let first = within("a change of the second", feed.next()).await;
    let uid = |pod: &Value| pod["metadata"]["uid"].clone();
    assert!(first.iter().all(|news| news.after.as_deref().is_none_or(|pod| uid(pod) == uid(&second))));
    let is_refused = |(_, code): &(String, u16)| matches!(code, 409 | 422);
    until("a refusal of the first one's UID", async || bench.writes("a").iter().any(is_refused).then_some(())).await;
}

#[tokio::test]
async fn deleted_pod_leaves_its_gpus_to_the_next() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replica = bench.gating().await;
    bench.server.be_late("patch", "/pods/a/status", 1);
    bench.pod(&pod("a", 0, 0)).await;
    bench.pod_is("a", "is nominated", |pod| pod["status"]["nominatedNodeName"].is_string()).await;
    bench.pod(&pod("b", 0, 0)).await;
    bench.server.delete("Pod", "default", "a", Some(0)).unwrap();
    assert_eq!(bench.is_freed("b").await, "n1");
    bench.server.answer_late();
}

#[tokio::test]
async fn refused_and_unanswered_writes_are_made_again() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replica = bench.gating().await;
    bench.server.fail("patch", "/pods/failed/status", 2, StatusCode::INTERNAL_SERVER_ERROR);
    bench.server.fail("patch", "/pods/busy", 1, StatusCode::TOO_MANY_REQUESTS);
    bench.server.swallow("patch", "/pods/lost/status", 1);
    bench.server.lose_answers("patch", "/pods/silent/status", 1);
    for name in ["failed", "busy", "lost", "silent"] {
        bench.pod(&pod(name, 8, 0)).await;
    }
    for name in ["failed", "busy", "lost", "silent"] {
        bench.is_freed(name).await;
    }
    assert_eq!(bench.writes("failed"), writes(&[("status", 500), ("status", 500), ("status", 200), ("", 200)]));
}

#[tokio::test]
async fn next_leader_finishes_what_the_last_one_has_begun() {
    let bench = Bench::with_nodes(&[("n1", 1), ("n2", 1)]).await;
    let [mut leader, follower] = bench.pair(&gates()).await;
    bench.server.be_late("patch", "/pods/a/status", 1);
    bench.pod(&pod("a", 0, 0)).await;
    bench.pod_is("a", "is nominated", |pod| pod["status"]["nominatedNodeName"].is_string()).await;
    leader.signal("KILL").await;
    leader.ended().await;
    bench.called(&[&follower]).await;
    let second = bench.pod(&pod("b", 0, 0)).await;
    assert!(is_gated(&second));
    let nodes = [bench.is_freed("a").await, bench.is_freed("b").await];
    assert_ne!(nodes[0], nodes[1], "no GPU twice");
}

#[tokio::test]
async fn replica_that_does_not_lead_writes_no_plan() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let [leader, follower] = bench.pair(&gates()).await;
    leader.signal("STOP").await;
    bench.called(&[&follower]).await;
    bench.pod(&pod("a", 8, 0)).await;
    let writes = bench.server.wait_for(|view| {
        let lease = view.get("Lease", "divvy-system", "divvy-webhook")?;
        let is_new = lease["spec"]["holderIdentity"] == "divvy-webhook-b";
        is_new.then(|| {
            view.requests().iter().filter(|request| request.verb == "patch" && request.resource == "pods").count()
        })
    });
    assert_eq!(within("another leader", writes).await, 0);
    bench.is_freed("a").await;
    leader.signal("CONT").await;
}

#[tokio::test]
async fn gates_go_where_pods_get_none_any_more() {
    let bench = Bench::with_nodes(&[]).await;
    let mut replica = bench.gating().await;
    for name in ["a", "b"] {
        assert!(is_gated(&bench.pod(&pod(name, 8, 0)).await));
    }
    let mut others = gated("others", 8);
    others["spec"]["schedulingGates"].as_array_mut().unwrap().push(json!({ "name": "example.com/other" }));
    bench.server.create(&others).unwrap();
    replica.signal("KILL").await;
    replica.ended().await;
    let _next = bench.start("divvy-webhook-b", &json!({ "scheduling": "node" }));
    for name in ["a", "b"] {
        bench.pod_is(name, "has no gate", |pod| !is_gated(pod)).await;
    }
    let left = json!([{ "name": "example.com/other" }]);
    bench.pod_is("others", "has only the other gate", |pod| pod["spec"]["schedulingGates"] == left).await;
}

#[tokio::test]
async fn gate_goes_from_a_pod_that_requests_no_gpus() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replica = bench.gating().await;
    bench.server.create(&without_gpus("a")).unwrap();
    let pod = bench.pod_is("a", "has no gate", |pod| !is_gated(pod)).await;
    assert_eq!(plan(&pod), None);
}

#[tokio::test]
async fn group_larger_than_what_is_written_at_a_time_starts() {
    let bench = Bench::with_nodes(&[("n1", 8)]).await;
    let api = PodGroupApi::Coscheduling;
    bench.define_pod_groups(api);
    bench
        .server
        .create(&json!({
            "apiVersion": format!("{}/{}", api.group(), api.version()), "kind": "PodGroup",
            "metadata": { "name": "g", "namespace": "default" }, "spec": { "minMember": 40 },
        }))
        .unwrap();
    let _replica = bench.gating().await;
    let names: Vec<String> = (0..40).map(|number| format!("g-{number}")).collect();
    for name in &names {
        assert!(
            !names.iter().any(|name| freed(&bench.server.get("Pod", "default", name).unwrap_or_default()).is_some())
        );
        let mut member = gated(name, 8);
        member["metadata"]["labels"] = json!({ pod_group::LABEL: "g" });
        bench.server.create(&member).unwrap();
    }
    for name in &names {
        bench.is_freed(name).await;
    }
    bench.pod(&pod("alone", 8, 0)).await;
    bench.pod_is("alone", "is told that it doesn't fit", |pod| pod["status"]["conditions"].is_array()).await;
}

#[tokio::test]
async fn pods_that_cannot_be_evicted_yet_are_evicted_later() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replica = bench.gating().await;
    bench.pod(&pod("low", 0, 0)).await;
    bench.is_freed("low").await;
    let low = bench.server.bind("default", "low", "n1", &json!({})).unwrap();
    bench.server.fail("create", "/pods/low/eviction", 1, StatusCode::TOO_MANY_REQUESTS);
    let mut high = gated("high", 8);
    high["spec"]["priority"] = 9.into();
    bench.server.create(&high).unwrap();
    let evicted = bench.server.wait_for(|view| {
        let low = view.get("Pod", "default", "low")?;
        low["metadata"]["deletionTimestamp"].as_str().map(drop)
    });
    within("the eviction", evicted).await;
    let requests = bench.server.requests();
    let codes = requests.iter().filter(|request| request.subresource == "eviction").map(|request| request.code);
    // The first try, the second, and the eviction.
    assert_eq!(codes.collect::<Vec<_>>(), [429, 201, 201]);
    let high = bench.server.get("Pod", "default", "high").unwrap();
    assert!(is_gated(&high), "its GPU isn't free yet");
    bench.server.remove("Pod", "default", "low", low["metadata"]["uid"].as_str().unwrap()).unwrap();
    assert_eq!(bench.is_freed("high").await, "n1");
}

#[tokio::test]
async fn reason_of_a_pod_that_fits_nowhere_is_given_once() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let _replica = bench.gating().await;
    bench.server.create(&gated("a", 80)).unwrap();
    let events = |name: &'static str| {
        let of_pod = move |event: &&Value| event["involvedObject"]["name"] == name;
        let events = bench.server.list("Event");
        events.iter().filter(of_pod).map(|event| event["count"].as_u64().unwrap_or(1)).sum::<u64>()
    };
    let has_event = async |name| until("an event", async || (events(name) > 0).then_some(())).await;
    has_event("a").await;
    let placed = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|one| one["type"] == condition::PLACED)
    };
    let pod = bench.pod_is("a", "has the condition", |pod| placed(pod).is_some()).await;
    let before = placed(&pod).unwrap();
    assert_eq!((&before["status"], &before["reason"]), (&json!("False"), &json!("NoNodeFits")));
    // Only numbers differ now.
    bench.node("n2", 1);
    bench.server.create(&gated("b", 80)).unwrap();
    has_event("b").await;
    assert_eq!(events("a"), 1);
    assert_eq!(placed(&bench.server.get("Pod", "default", "a").unwrap()), Some(before));
}

//! The leader dies at the worst moment, and the other replica takes over.

use std::time::Instant;

use fake_apiserver::{Request, View};
use http::StatusCode;
use serde_json::{Value, json};

use crate::bench::{Bench, about, pod, route, to};
use crate::https::Https;
use crate::replica::Replica;
use crate::{until, within};

struct Scene {
    leader: Replica,
    follower: Replica,
    bench: Bench,
    https: Https,
}

impl Scene {
    /// One node with one card.
    async fn new() -> Self {
        let bench = Bench::with_nodes(&[("n1", 1)]).await;
        let [leader, follower] = bench.pair(&json!({})).await;
        Self { leader, follower, https: bench.https(), bench }
    }

    /// Asks for a pod to be bound, and kills the leader when its binding is on the way.
    async fn dies_at_bind(&mut self, pod: &Value) {
        let body = to(pod, "n1").to_string();
        tokio::select! {
            answer = self.https.post(self.leader.extender, "/bind", body) => panic!("answered: {answer:?}"),
            () = within("a binding", self.bench.server.wait_for(|view| {
                view.requests().iter().find(|request| request.subresource == "binding").map(drop)
            })) => {}
        }
        self.leader.signal("KILL").await;
        self.leader.ended().await;
    }

    /// The follower's answer, as soon as it leads.
    async fn bind(&self, pod: &Value) -> String {
        let answer = self.bench.patiently(&self.https, &self.follower, "/bind", &to(pod, "n1")).await.json();
        answer["Error"].as_str().unwrap().to_owned()
    }

    /// How lists of pods were answered.
    fn lists(&self) -> Vec<u16> {
        listed(&self.bench.server.requests())
    }

    fn bindings(&self) -> Vec<u16> {
        let requests = self.bench.server.requests();
        let bindings = requests.iter().filter(|request| request.subresource == "binding");
        bindings.map(|request| request.code).collect()
    }
}

fn listed(requests: &[Request]) -> Vec<u16> {
    let lists = requests.iter().filter(|request| request.verb == "list" && request.resource == "pods");
    lists.map(|request| request.code).collect()
}

#[tokio::test]
async fn unanswered_binding_counts_for_the_next_leader() {
    let mut scene = Scene::new().await;
    let [first, second] = [scene.bench.pod(&pod("first", 0, 0)).await, scene.bench.pod(&pod("second", 8, 0)).await];
    scene.bench.server.lose_answers("create", "/binding", 1);
    scene.dies_at_bind(&first).await;
    let planned = scene.bench.planned("first").expect("it is bound");

    let why = scene.bind(&second).await;
    assert!(why.contains("held exclusively by another pod"), "{why}");
    let filtered =
        scene.https.post(scene.follower.extender, "/filter", about(&second, &["n1"]).to_string()).await.json();
    assert_eq!(filtered["NodeNames"], json!([]), "{filtered}");
    assert!(scene.follower.metric("divvy_reservations", &[]).await > 0.5);
    // The scheduler has had no answer either, and tries again.
    scene.bind(&first).await;
    assert_eq!(scene.bench.planned("first").unwrap(), planned);
    assert_eq!(scene.bench.planned("second"), None);
    let taken = scene.bindings().into_iter().filter(|code| matches!(code, 0 | 201)).count();
    assert_eq!(taken, 1, "bound once: {:?}", scene.bindings());
}

#[tokio::test]
async fn lost_binding_is_made_by_the_next_leader() {
    let mut scene = Scene::new().await;
    let [first, second] = [scene.bench.pod(&pod("first", 0, 0)).await, scene.bench.pod(&pod("second", 8, 0)).await];
    scene.bench.server.swallow("create", "/binding", 1);
    scene.dies_at_bind(&first).await;
    assert_eq!(scene.bench.planned("first"), None);

    assert_eq!(scene.bind(&first).await, "");
    assert!(scene.bench.planned("first").is_some());
    assert_eq!(scene.bindings(), [0, 201]);
    assert!(!scene.bind(&second).await.is_empty());
    assert_eq!(scene.bench.planned("second"), None);
}

#[tokio::test]
async fn new_leader_reads_reservations_before_it_answers() {
    let mut scene = Scene::new().await;
    let made = scene.bench.pod(&pod("a", 8, 0)).await;
    scene.bench.server.fail("list", "/api/v1/pods", 3, StatusCode::INTERNAL_SERVER_ERROR);
    scene.leader.signal("KILL").await;
    scene.leader.ended().await;
    scene.follower.says("list pods (the last leader's reservations) failed: 500 ").await;
    let answer = scene.https.post(scene.follower.extender, "/filter", about(&made, &["n1"]).to_string()).await;
    assert_eq!(answer.code, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.text().contains("has just become the leader"), "{}", answer.text());
    assert_eq!(scene.bind(&made).await, "");
    let order = scene.bench.server.requests();
    let order = order
        .iter()
        .filter(|request| request.verb == "list" && request.resource == "pods" || request.subresource == "binding");
    let codes: Vec<u16> = order.map(|request| request.code).collect();
    assert!(codes.ends_with(&[500, 500, 500, 200, 201]), "{codes:?}");
}

/// Prints how long the scheduler finds no leader behind the Service `divvy-extender`.
#[tokio::test]
async fn service_leads_to_the_next_leader_after_a_kill() {
    let mut scene = Scene::new().await;
    let made = scene.bench.pod(&pod("a", 8, 0)).await;
    let behind = |address| move |view: &View<'_>| route(view).filter(|to| *to == address);
    within("a route to the leader", scene.bench.server.wait_for(behind(scene.leader.extender))).await;
    scene.leader.signal("KILL").await;
    let killed = Instant::now();
    scene.leader.ended().await;
    scene.follower.leads().await;
    let term = scene.bench.server.requests().len();
    within("a route to the follower", scene.bench.server.wait_for(behind(scene.follower.extender))).await;
    let requests = scene.bench.server.requests();
    let is_slice =
        |request: &Request| request.verb == "patch" && request.path.ends_with("endpointslices/divvy-extender");
    let until_route = requests[term..].iter().take_while(|request| !is_slice(request));
    let renewals =
        until_route.filter(|request| request.verb == "update" && request.resource.starts_with("leases")).count();
    // It is restored every fifth renewal in any case.
    assert!(renewals <= 2, "{renewals} renewals of the Lease before the EndpointSlice was written");
    // Who is behind the Service answers: no call is lost after that.
    let answer = scene.https.post(scene.follower.extender, "/bind", to(&made, "n1").to_string()).await;
    println!("bound {:?} after the leader was killed", killed.elapsed());
    assert_eq!(answer.json()["Error"], "");
    assert!(scene.bench.planned("a").is_some());
}

#[tokio::test]
async fn route_that_somebody_removes_is_restored() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    within("a route", bench.server.wait_for(route)).await;
    bench.server.delete("EndpointSlice", "divvy-system", "divvy-extender", None).unwrap();
    assert_eq!(within("a route again", bench.server.wait_for(route)).await, replica.extender);
}

/// The leader goes on for a while after the Service is deleted, and must not leave anything behind.
#[tokio::test]
async fn endpoint_slice_is_deleted_with_its_service() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let replica = bench.alone(&json!({})).await;
    within("a route", bench.server.wait_for(route)).await;
    let service = bench.server.get("Service", "divvy-system", "divvy-extender").unwrap();
    let slice = bench.server.get("EndpointSlice", "divvy-system", "divvy-extender").unwrap();
    let owner = &slice["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Service"), &service["metadata"]["uid"]));
    bench.server.delete("Service", "divvy-system", "divvy-extender", None).unwrap();
    assert_eq!(bench.server.get("EndpointSlice", "divvy-system", "divvy-extender"), None);
    replica.says("patch endpointslices/divvy-extender failed: 404 ").await;
    assert_eq!(bench.server.get("EndpointSlice", "divvy-system", "divvy-extender"), None);
    let metadata = json!({ "name": "divvy-extender", "namespace": "divvy-system" });
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service["spec"] });
    bench.server.create(&service).unwrap();
    assert_eq!(within("a route again", bench.server.wait_for(route)).await, replica.extender);
}

#[tokio::test]
async fn list_of_reservations_resumes_where_it_failed() {
    let mut scene = Scene::new().await;
    for number in 0..1_100 {
        let mut bound = pod(&format!("bound-{number}"), 8, 0);
        bound["spec"]["nodeName"] = "n1".into();
        scene.bench.server.create(&bound).unwrap();
    }
    let made = scene.bench.pod(&pod("a", 8, 0)).await;
    let lists = scene.lists().len();
    scene.bench.server.be_late("list", "/api/v1/pods", 1);
    scene.bench.server.fail("list", "/api/v1/pods", 1, StatusCode::INTERNAL_SERVER_ERROR);
    scene.leader.signal("KILL").await;
    scene.leader.ended().await;
    within("the first page", scene.bench.server.wait_for(|view| (listed(view.requests()).len() > lists).then_some(())))
        .await;
    scene.bench.server.answer_late();
    assert_eq!(scene.bind(&made).await, "");
    // 20 on the first page, whatever their size, then 500.
    assert_eq!(scene.lists()[lists..], [200, 500, 200, 200, 200]);
}

#[tokio::test]
async fn pod_that_ends_during_the_list_stays_ended() {
    let mut scene = Scene::new().await;
    let [first, second] = [scene.bench.pod(&pod("first", 0, 0)).await, scene.bench.pod(&pod("second", 0, 0)).await];
    let answer = scene.https.post(scene.leader.extender, "/bind", to(&first, "n1").to_string()).await.json();
    assert_eq!(answer["Error"], "");
    let lists = scene.lists().len();
    scene.bench.server.be_late("list", "/api/v1/pods", 1);
    scene.leader.signal("KILL").await;
    scene.leader.ended().await;
    within("the list", scene.bench.server.wait_for(|view| (listed(view.requests()).len() > lists).then_some(()))).await;
    assert!(scene.follower.metric("divvy_reservations", &[]).await > 0.5);
    scene.bench.server.delete("Pod", "default", "first", Some(0)).unwrap();
    let forgotten = async || (scene.follower.metric("divvy_reservations", &[]).await < 0.5).then_some(());
    until("the watch tells of the end", forgotten).await;
    scene.bench.server.answer_late();
    assert_eq!(scene.bind(&second).await, "");
}

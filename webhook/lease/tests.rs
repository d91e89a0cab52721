//! Several replicas at one API server.

use divvy_runtime::api_server;
use fake_apiserver::{ApiServer, View};
use k8s_openapi::api::coordination::v1::LeaseSpec;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::task::JoinHandle;

use super::*;

/// Longest wait for anything.
const LONG: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "divvy-system";
const NAME: &str = "divvy-webhook";

/// As in production, but faster. Others wait for a second at least: a Lease counts seconds.
const TIMING: Timing = Timing {
    duration: Duration::from_millis(1500),
    renew_deadline: Duration::from_secs(1),
    retry_period: Duration::from_millis(100),
};

/// Others wait for as good as ever.
const PATIENT: Timing = Timing { duration: Duration::from_secs(3600), ..TIMING };

struct Replica {
    leader: watch::Receiver<Leader>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    us: Candidate,
}

// === impl Replica ===

impl Replica {
    /// A replica whose token is its name.
    async fn start(server: &ApiServer, number: u8, timing: Timing) -> Self {
        let identity = format!("divvy-webhook-{number}");
        server.allow(&identity, identity.as_str());
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(&identity)).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let api_server = api_server::ApiServer::new(config).unwrap();
        let us = Candidate { identity, timing };
        let (sender, leader) = watch::channel(Leader::Nobody);
        let (stop, candidate) = (CancellationToken::new(), us.clone());
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { run(api_server, NAMESPACE, NAME, candidate, sender, &TaskTracker::new(), stop).await }
        });
        Self { leader, stop, task, us }
    }

    async fn sees(&mut self, what: &str, is: impl Fn(&Leader) -> bool) -> Leader {
        let seen = timeout(LONG, self.leader.wait_for(|leader| is(leader))).await;
        seen.unwrap_or_else(|_| panic!("{} never sees {what}", self.us.identity)).unwrap().clone()
    }

    async fn leads(&mut self) -> (u64, Instant) {
        match self.sees("itself lead", |leader| matches!(leader, Leader::Us { .. })).await {
            Leader::Us { term, until } => (term, until),
            _ => unreachable!(),
        }
    }

    async fn follows(&mut self, other: &Self) {
        let leader = Leader::Other { identity: other.us.identity.clone() };
        self.sees(&format!("{leader:?}"), |seen| *seen == leader).await;
    }
}

async fn server() -> ApiServer {
    let server = ApiServer::start(&[]).await.unwrap();
    let namespace = serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    server.create(&namespace).unwrap();
    server
}

fn spec(server: &ApiServer) -> LeaseSpec {
    serde_json::from_value(server.get("Lease", NAMESPACE, NAME).unwrap()["spec"].clone()).unwrap()
}

#[tokio::test]
async fn one_replica_leads_and_the_others_follow() {
    let server = server().await;
    let mut replicas = Vec::new();
    for number in 1..=4 {
        replicas.push(Replica::start(&server, number, TIMING).await);
    }
    let holder = timeout(
        LONG,
        server
            .wait_for(|view| view.get("Lease", NAMESPACE, NAME)?["spec"]["holderIdentity"].as_str().map(str::to_owned)),
    );
    let holder = holder.await.expect("somebody leads");
    let at = replicas.iter().position(|replica| replica.us.identity == holder).unwrap();
    let mut leader = replicas.swap_remove(at);
    leader.leads().await;
    for mut replica in replicas {
        replica.follows(&leader).await;
    }
    let spec = spec(&server);
    assert_eq!((spec.lease_duration_seconds, spec.lease_transitions), (Some(2), Some(1)));
}

#[tokio::test]
async fn partitioned_leader_stops_before_another_starts() {
    let server = server().await;
    let mut first = Replica::start(&server, 1, TIMING).await;
    first.leads().await;
    let mut second = Replica::start(&server, 2, TIMING).await;
    second.follows(&first).await;
    server.refuse("divvy-webhook-1");
    let mut until = Instant::now();
    loop {
        let seen = first.leader.borrow_and_update().clone();
        let Leader::Us { until: renewed, .. } = seen else { break };
        until = renewed;
        timeout(LONG, first.leader.changed()).await.expect("an end").unwrap();
    }
    second.leads().await;
    assert!(until <= Instant::now());
    server.allow("divvy-webhook-1", "divvy-webhook-1");
    first.follows(&second).await;
    assert_eq!(spec(&server).lease_transitions, Some(2));
}

#[tokio::test]
async fn stopped_replica_releases_the_lease_killed_one_does_not() {
    let server = server().await;
    let mut first = Replica::start(&server, 1, PATIENT).await;
    first.leads().await;
    let mut second = Replica::start(&server, 2, PATIENT).await;
    second.follows(&first).await;
    first.stop.cancel();
    first.sees("nobody lead", |leader| *leader == Leader::Nobody).await;
    second.leads().await;
    timeout(LONG, first.task).await.expect("an end").unwrap();
    second.task.abort();
    let mut third = Replica::start(&server, 3, PATIENT).await;
    third
        .sees(
            "the one that was killed",
            |leader| matches!(leader, Leader::Other { identity } if identity == "divvy-webhook-2"),
        )
        .await;
    // The pod's container starts again, under the pod's name: nobody waits.
    let mut again = Replica::start(&server, 2, PATIENT).await;
    again.leads().await;
}

#[tokio::test]
async fn api_server_outage_ends_the_term() {
    let server = server().await;
    let mut replica = Replica::start(&server, 1, TIMING).await;
    assert_eq!(replica.leads().await.0, 1);
    server.go_away().await;
    replica.sees("nobody lead", |leader| *leader == Leader::Nobody).await;
    server.come_back().await;
    assert_eq!(replica.leads().await.0, 2);
}

#[tokio::test]
async fn deleted_or_edited_lease_is_restored() {
    let server = server().await;
    let mut first = Replica::start(&server, 1, TIMING).await;
    first.leads().await;
    let mut second = Replica::start(&server, 2, TIMING).await;
    second.follows(&first).await;
    let holder = |view: &View<'_>| {
        let lease = view.get("Lease", NAMESPACE, NAME)?;
        (lease["spec"]["holderIdentity"] == "divvy-webhook-1").then_some(())
    };
    server.delete("Lease", NAMESPACE, NAME, None).unwrap();
    timeout(LONG, server.wait_for(holder)).await.expect("made again by the leader");
    server.edit("Lease", NAMESPACE, NAME, |lease| lease["spec"]["holderIdentity"] = "".into()).unwrap();
    timeout(LONG, server.wait_for(holder)).await.expect("acquired again by the leader");
    assert_eq!(first.leads().await.0, 1, "still the first term");
    server.edit("Lease", NAMESPACE, NAME, |lease| lease["spec"]["holderIdentity"] = "ann".into()).unwrap();
    first.sees("its term end", |leader| matches!(leader, Leader::Other { .. } | Leader::Nobody)).await;
    let mended = server.wait_for(|view| {
        let lease = view.get("Lease", NAMESPACE, NAME)?;
        lease["spec"]["holderIdentity"].as_str().filter(|holder| holder.starts_with("divvy-webhook-")).map(drop)
    });
    timeout(LONG, mended).await.expect("somebody leads again");
}

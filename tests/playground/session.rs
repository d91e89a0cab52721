//! One run: pods come in bursts, nodes are chosen, trouble is made, and after each burst everything is checked.

mod alone;
mod finale;
mod scheduled;
mod stay;

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use divvy_api::ContainerRequest;
use divvy_api::annotation::Planned;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::args::Args;
use crate::arrivals::{Arrivals, Offer};
use crate::chaos::{self, Affliction, Event};
use crate::checks::Invariant;
use crate::cluster::{Node, PATIENCE};
use crate::console::{self, Console};
use crate::control_plane::ControlPlane;
use crate::dashboard::Dashboard;
use crate::front::Front;
use crate::published::Published;
use crate::report::{Reason, Report};
use crate::reservations;
use crate::session::scheduled::Waiting;
use divvy_testkit::outside::Requests;
use divvy_testkit::pods::{Fate, NAMESPACE, PodShape};
use fake_kubelet::{Admission, Kubelet, Refusal};
use fake_scheduler::Past;

/// How long a refused or finished pod stays listed, in lifetimes.
const LINGERS: f64 = 0.1;

/// The cluster and what is going on in it.
pub struct Session {
    control_plane: ControlPlane,
    /// How pods come to their nodes; without it they are created and bound by us.
    front: Option<Front>,
    nodes: Vec<Node>,
    arrivals: Arrivals,
    console: Console,
    report: Report,
    verbose: bool,
    stays: bool,
    /// Ends with the cluster.
    pub dashboard: Option<Dashboard>,
    rng: StdRng,
    /// What pods ask for, also of those that have ended.
    requests: Requests,
    past: Past,
    endings: Vec<Ending>,
    /// Pods that the scheduler found no node for yet.
    waiting: Vec<Waiting>,
    /// Names of admitted pods that haven't failed since, by UID.
    admitted: HashMap<String, String>,
    afflictions: Vec<Affliction>,
    /// Nodes on which something may have changed since the last look.
    changed: BTreeSet<usize>,
    burst: u32,
    troubles: usize,
    /// Nodes that something has happened to.
    troubled: BTreeSet<usize>,
    kills: usize,
}

/// What becomes of a pod, and when.
struct Ending {
    at: f64,
    node: usize,
    uid: String,
    name: String,
    how: How,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    /// Containers end by themselves.
    Finish,
    /// Somebody deletes it.
    Delete,
}

/// A pod and the node that was chosen for it.
struct Placed {
    node: usize,
    shape: PodShape,
    requests: Vec<ContainerRequest>,
    /// What its Binding says of its cards.
    planned: Option<Planned>,
    at: f64,
    end: f64,
}

/// A pod that a kubelet has.
struct Submitted {
    placed: Placed,
    uid: String,
    kubelet: Arc<Kubelet>,
}

// === impl Session ===

impl Session {
    /// A session on these nodes, which serve already. Pods come by `front`, if there is one.
    pub fn new(
        args: &Args,
        control_plane: ControlPlane,
        front: Option<Front>,
        nodes: Vec<Node>,
        arrivals: Arrivals,
        console: Console,
    ) -> Self {
        let cards = nodes.iter().map(|node| node.view.cards.len()).sum();
        Self {
            report: Report::new(args, nodes.len(), cards),
            changed: (0..nodes.len()).collect(),
            control_plane,
            front,
            nodes,
            arrivals,
            console,
            verbose: args.verbose,
            stays: args.stays(),
            dashboard: None,
            rng: StdRng::seed_from_u64(args.seed),
            requests: Requests::new(),
            past: Past::default(),
            endings: Vec::new(),
            waiting: Vec::new(),
            admitted: HashMap::new(),
            afflictions: Vec::new(),
            burst: 0,
            troubles: 0,
            troubled: BTreeSet::new(),
            kills: 0,
        }
    }

    /// Offers all pods, then ends all faults, checks once more and prints the summary.
    pub async fn run(&mut self) -> anyhow::Result<()> {
        while self.report.offered < u64::from(self.report.settings.admissions) {
            self.next_burst().await?;
        }
        self.finale().await?;
        self.console.plain(&format!("\n{}", self.report.summary()));
        Ok(())
    }

    /// Where its pods are.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Nodes of the cluster.
    pub fn nodes(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Where the webhook's replicas serve their metrics.
    pub fn webhook_pages(&self) -> Vec<SocketAddr> {
        self.front.iter().flat_map(|front| front.webhook.pages()).collect()
    }

    /// What came of it.
    pub fn report(&self) -> &Report {
        &self.report
    }

    async fn next_burst(&mut self) -> anyhow::Result<()> {
        self.burst += 1;
        let offers = self.next_offers();
        self.end_pods(offers.last().map_or(0.0, |offer| offer.at));
        self.heal()?;
        self.look();
        let (submitted, strike) = if let Some(mut front) = self.front.take() {
            let submitted = self.schedule_all(&mut front, offers).await;
            self.front = Some(front);
            let submitted = submitted?;
            let strike = self.trouble(submitted.first().map(|first| first.placed.node))?;
            (submitted, strike)
        } else {
            let placed = self.place_all(offers);
            let strike = self.trouble(placed.first().map(|first| first.node))?;
            (placed.into_iter().map(|placed| self.submit(placed)).collect::<Result<Vec<_>, _>>()?, strike)
        };
        let struck = async {
            match strike {
                Some((event, node, after)) => event.strike(&mut self.nodes[node], after).await,
                None => Ok(()),
            }
        };
        let (outcomes, struck) = tokio::join!(outcomes(&submitted), struck);
        struck?;
        self.changed.extend(strike.map(|(_, node, _)| node));
        self.changed.extend(submitted.iter().map(|submitted| submitted.placed.node));
        self.look();
        submitted.into_iter().zip(outcomes).for_each(|(submitted, outcome)| self.settle(submitted, outcome));
        Ok(())
    }

    /// Mostly one pod, sometimes several at once.
    fn next_offers(&mut self) -> Vec<Offer> {
        let left = u64::from(self.report.settings.admissions) - self.report.offered;
        let size = if self.rng.random_bool(0.15) { self.rng.random_range(2..=5) } else { 1 };
        (0..left.min(size)).map(|_| self.arrivals.next_offer()).collect()
    }

    fn end_pods(&mut self, now: f64) {
        let due: Vec<Ending> = self.endings.extract_if(.., |ending| ending.at <= now).collect();
        for Ending { at, node, uid, name: pod, how } in due {
            let told = match how {
                How::Finish => self.nodes[node].kubelet.finish(&uid, true).is_ok(),
                How::Delete => self.control_plane.server.delete("Pod", NAMESPACE, &pod, None).is_ok(),
            };
            let name = self.admitted.remove(&uid);
            if let (true, Some(name), true) = (told, name, self.verbose) {
                let what = if how == How::Finish { "succeeds" } else { "is deleted" };
                self.console.pod(&self.nodes[node].name, &name, "", what);
            }
            if how == How::Finish {
                self.endings.push(Ending { at: at + LINGERS, node, uid, name: pod, how: How::Delete });
            }
            self.changed.insert(node);
        }
    }

    /// Ends faults whose time is over.
    fn heal(&mut self) -> anyhow::Result<()> {
        // Cards come and go without a pod's doing.
        self.changed.extend(self.afflictions.iter().map(|affliction| affliction.node));
        for over in self.afflictions.extract_if(.., |affliction| affliction.is_over(self.burst)) {
            over.cure(&mut self.nodes)?;
        }
        Ok(())
    }

    /// Looks at the nodes that may have changed, and checks them.
    fn look(&mut self) {
        for at in std::mem::take(&mut self.changed) {
            let node = &mut self.nodes[at];
            let seen = node.kubelet.view();
            node.view.look(&seen, &self.requests);
            self.report.checks.check(&node.view);
            if node.view.cards.iter().any(|card| !card.healthy) {
                self.troubled.insert(at);
            }
            let told = Published::read(&self.control_plane.server, &node.view);
            let found = told.and_then(|told| told.contradicts(&node.view));
            self.report.checks.note(Invariant::I2, &node.name, found);
            if self.front.is_some() {
                let found = reservations::fit(&self.control_plane.server, &node.view, &self.requests, |uid| {
                    seen.pods.contains_key(uid)
                });
                self.report.checks.note(Invariant::I5, &node.name, found);
            }
            let failed = seen.pods.iter().filter_map(|(uid, pod)| Some((uid, pod.failure.as_ref()?)));
            for (uid, failure) in failed {
                if let Some(name) = self.admitted.remove(uid) {
                    let Reason { kind, text } = Reason::from(failure);
                    self.console.said(&node.name, &name, &format!("failed later: {kind}: {text}"));
                    *self.report.failed_later.entry(format!("{kind}: {text}")).or_default() += 1;
                }
            }
            if let Err(ended) = node.daemon.ended() {
                self.report.checks.note(Invariant::Recovery, &node.name, Err(ended));
            }
        }
    }

    /// Now and then makes trouble on a node that is about to get a pod.
    fn trouble(&mut self, target: Option<usize>) -> anyhow::Result<Option<(Event, usize, Duration)>> {
        let often = if self.troubles < chaos::ALL.len() { 6 } else { 12 };
        let Some(target) = target else { return Ok(None) };
        let calm = self.afflictions.iter().all(|affliction| affliction.node != target);
        if !self.report.settings.chaos || !calm || self.rng.random_range(0..often) > 0 {
            return Ok(None);
        }
        let event = Event::draw(self.troubles, &mut self.rng);
        self.troubles += 1;
        self.troubled.insert(target);
        self.console.node(&self.nodes[target].name, &format!("** {}", event.name()));
        *self.report.chaos.entry(event.name().to_owned()).or_default() += 1;
        let affliction = event.afflict(&mut self.nodes[target], target, self.burst, &mut self.rng)?;
        let strikes = affliction.is_none();
        self.afflictions.extend(affliction);
        match event {
            Event::DaemonKilled => self.report.daemon_restarts += 1,
            Event::KubeletRestarted | Event::CheckpointLost => self.report.kubelet_restarts += 1,
            _ => {}
        }
        let after = Duration::from_micros(self.rng.random_range(0..15_000));
        Ok(strikes.then_some((event, target, after)))
    }

    fn settle(&mut self, submitted: Submitted, outcome: Option<Admission>) {
        let Submitted { placed: Placed { node, shape, planned, at, end, .. }, uid, .. } = submitted;
        let name = format!("{NAMESPACE}/{}", shape.name);
        let node_name = self.nodes[node].name.clone();
        let planned = planned.filter(|_| outcome != Some(Admission::Deleted) && self.front.is_some());
        let refused = match outcome {
            Some(Admission::Admitted) => None,
            Some(Admission::Rejected(refusal)) => Some(Reason::from(&refusal)),
            Some(Admission::Deleted) => Some(Reason::from(&Refusal {
                reason: "Deleted".to_owned(),
                message: "deleted before its turn came".to_owned(),
            })),
            None => {
                let found = Err(format!("{name}: not admitted or refused within {} s", PATIENCE.as_secs()));
                return self.report.checks.note(Invariant::Recovery, &node_name, found);
            }
        };
        if shape.fate != Fate::Runs {
            let found = if refused.is_some() { Ok(()) } else { Err(format!("{name}: admitted, but must be refused")) };
            self.report.checks.note(Invariant::Refusal, &node_name, found);
        }
        if let Some(planned) = planned {
            self.judge(node, &uid, &planned, refused.as_ref());
        }
        if let Some(reason) = refused {
            self.refuse(&node_name, &name, reason);
            return self.endings.push(Ending { at: at + LINGERS, node, uid, name: shape.name, how: How::Delete });
        }
        self.report.admitted += 1;
        self.show(node, &uid, &name);
        self.admitted.insert(uid.clone(), name);
        let how = if self.rng.random_bool(0.5) { How::Finish } else { How::Delete };
        self.endings.push(Ending { at: end, node, uid, name: shape.name, how });
    }

    fn refuse(&mut self, node: &str, pod: &str, reason: Reason) {
        let by = if reason.kind == "admission" { "at admission" } else { &reason.kind };
        self.console.said(node, pod, &format!("refused {by}: {}", reason.text));
        self.report.refuse(reason);
    }

    /// Prints what each container got.
    fn show(&mut self, node: usize, uid: &str, name: &str) {
        let Node { name: node, view, .. } = &self.nodes[node];
        let containers = view.pods.iter().filter(|pod| pod.uid == uid).flat_map(|pod| &pod.containers);
        let claiming: Vec<_> =
            containers.filter_map(|container| Some((container, container.request.as_ref()?))).collect();
        for (container, request) in &claiming {
            let held = container.cards();
            let cards = view.cards.iter().filter(|card| held.contains(card.id.as_str()));
            let shares: Vec<_> = cards.map(|card| (card.id.clone(), request.share_on(card.memory))).collect();
            self.console.pod(node, name, &container.name, &console::share(&shares, request));
        }
        if claiming.is_empty() {
            self.report.admitted_without_cards += 1;
            if self.verbose {
                self.console.pod(node, name, "", "no card");
            }
        } else if claiming.iter().all(|(container, _)| container.cards().is_empty()) {
            self.report.overlooked += 1;
        }
    }
}

/// What came of each pod; `None` for one that is neither admitted nor refused in time.
async fn outcomes(submitted: &[Submitted]) -> Vec<Option<Admission>> {
    let mut outcomes = Vec::new();
    for Submitted { uid, kubelet, .. } in submitted {
        outcomes.push(admission(kubelet, uid).await);
    }
    outcomes
}

async fn admission(kubelet: &Kubelet, uid: &str) -> Option<Admission> {
    let outcome = async {
        kubelet.arrived(uid).await;
        kubelet.admitted(uid).await.ok()
    };
    tokio::time::timeout(PATIENCE, outcome).await.ok().flatten()
}

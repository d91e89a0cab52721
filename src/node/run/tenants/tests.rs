//! Containers keep the tier that they were made for, as far as the node serves it: allocator, directories and tiers together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use divvy_api::annotation::PolicyName;
use divvy_api::names::annotation as key;
use divvy_api::request::Defaults;
use divvy_api::{
    Card, CardId, Compute, ComputeLimit, ContainerKind, ContainerSpec, Cores, Link, Links, Memory, MigInstance,
    Priority, ResourceNames, SlotId, Terms, Tier,
};
use divvy_node_core::allocator::{AllocationSettings, Choice, Refusal};
use divvy_node_core::inventory::{DeviceInfo, Inventory, MigPlace};
use divvy_node_core::ledger::Ledger;
use divvy_node_core::pod::{Phase, Pod, PodList};
use divvy_node_core::ports::ContainerSetup as _;
use divvy_placement::Policy;

use super::*;
use crate::config::{Config, KeySet as _, Keys};
use crate::container::isolation::tests::{mps, shim};
use crate::container::isolation::{Accounting, Isolation, Mig};
use crate::container::limits::{self, Limits};
use crate::container::{Containers, LIMITS_FILE};
use divvy_mps::MpsDirectory;

/// A node without processes, over real directories.
struct Node {
    allocator: Allocator,
    containers: Arc<Containers>,
    pods: Vec<Arc<Pod>>,
    cards: Vec<(Card, DeviceInfo)>,
    directory: tempfile::TempDir,
}

// === impl Node ===

impl Node {
    /// So many empty cards of 1000 MiB, `GPU-0` and on.
    fn new(cards: u32) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let cards = (0..cards).map(card).collect();
        let (allocator, containers) = start(&directory, "state", Tier::Accounting);
        let mut node = Self { allocator, containers, pods: Vec::new(), cards, directory };
        node.show_cards();
        node
    }

    fn show_cards(&mut self) {
        let links = Links::new(self.cards.len(), |_, _| Link::System);
        let tier = self.allocator.tier();
        let cards = self.cards.iter().map(|(card, device)| (Card { tier, ..card.clone() }, device.clone()));
        self.allocator.set_inventory(Arc::new(Inventory::new(cards, links)));
    }

    /// The next daemon, which serves this tier.
    fn restart(&mut self, tier: Tier) {
        // Only one can have the ledger open.
        self.lose_journal();
        (self.allocator, self.containers) = start(&self.directory, "state", tier);
        self.show_cards();
        self.allocator.renew_limits();
    }

    /// A daemon that finds no journal; the directories are still there.
    fn lose_journal(&mut self) {
        (self.allocator, self.containers) = start(&self.directory, "another-state", Tier::Accounting);
        self.show_cards();
    }

    fn propose(&mut self, size: usize) -> Result<Vec<SlotId>, Refusal> {
        let slots = self.cards.iter().flat_map(|(card, _)| (0..card.slots).map(|number| card.id.slot(number)));
        let available = slots.filter(|slot| self.allocator.ledger().allocations().holder_of(slot).is_none()).collect();
        let choice = Choice { available, required: BTreeSet::new(), size };
        self.allocator.propose(&ResourceNames::default().count, &self.pods, &choice)
    }

    fn allocate(&mut self, slots: &[SlotId]) -> Result<(), Refusal> {
        let names = ResourceNames::default();
        let proposed = self.allocator.allocate_proposed(slots);
        proposed.unwrap_or_else(|| self.allocator.allocate(&names.count, &self.pods, slots)).map(drop)
    }

    fn serve(&mut self, size: usize) -> Result<(), Refusal> {
        let slots = self.propose(size)?;
        self.allocate(&slots)
    }

    fn holding(&self, pod: &str, container: &str) -> Option<&Holding> {
        self.allocator.ledger().allocations().pod(&format!("uid-{pod}"))?.holding(container)
    }

    fn limits(&self, pod: &str, container: &str) -> PathBuf {
        let nonce = self.holding(pod, container).expect("held").nonce;
        self.directory.path().join(format!("run/containers/{nonce}/limits")).join(LIMITS_FILE)
    }

    /// What the container reads of its limits.
    fn written(&self, pod: &str, container: &str) -> Limits {
        limits::read(&std::fs::read_to_string(self.limits(pod, container)).expect("limits")).expect("whole ones")
    }
}

fn start(directory: &tempfile::TempDir, state: &str, tier: Tier) -> (Allocator, Arc<Containers>) {
    let run = directory.path().join("run");
    let enforcement: Box<dyn Isolation> = match tier {
        Tier::Accounting => Box::new(Accounting),
        Tier::Shim => shim(&run, "library"),
        Tier::Mps => mps(&run, "library"),
        Tier::Mig => Box::new(Mig),
    };
    let settings = AllocationSettings {
        node_name: "node".to_owned(),
        names: ResourceNames::default(),
        defaults: Defaults::default(),
        policy: Policy { name: PolicyName::Binpack, ..Policy::default() },
        accounting_namespaces: BTreeSet::new(),
    };
    let (ledger, _) = Ledger::open(&directory.path().join(state)).expect("the ledger");
    let containers = Arc::new(Containers::new((&config(&run)).into(), enforcement));
    (Allocator::new(settings, ledger, Arc::clone(&containers) as _), containers)
}

fn config(run: &std::path::Path) -> Config {
    let env = |name: &str| match name {
        "NODE_NAME" => Some("node".into()),
        "RUN_DIR" => Some(run.into()),
        "DEVICE_LIST_STRATEGY" => Some("volume-mounts".into()),
        _ => None,
    };
    Keys::from_env(env).and_then(Keys::into_config).expect("valid")
}

fn card(number: u32) -> (Card, DeviceInfo) {
    let id = format!("GPU-{number}").parse().expect("a UUID");
    let card = Card { slots: 4, ..Card::healthy(id, Memory::mib(1000)) };
    (card, DeviceInfo { minor: Some(number), ..DeviceInfo::default() })
}

/// A pod that has just come, with a container `c0` and its limits without `nvidia.com/`.
fn pod(name: &str, limits: &[(&str, &str)]) -> Arc<Pod> {
    let limits = limits.iter().map(|(name, amount)| (format!("nvidia.com/{name}"), (*amount).to_owned())).collect();
    Arc::new(Pod {
        uid: format!("uid-{name}"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        annotations: BTreeMap::new(),
        containers: vec![ContainerSpec { name: "c0".to_owned(), kind: ContainerKind::App, index: 0, limits }],
        phase: Phase::Pending,
        states: BTreeMap::new(),
    })
}

/// A pod with so many MiB of one card.
fn part(name: &str, mib: &str) -> Arc<Pod> {
    pod(name, &[("gpu", "1"), ("gpumem", mib)])
}

fn annotated(mut pod: Arc<Pod>, key: &str, value: &str) -> Arc<Pod> {
    Arc::make_mut(&mut pod).annotations.insert(key.to_owned(), value.to_owned());
    pod
}

fn slot(name: &str) -> SlotId {
    name.parse().expect("a slot")
}

fn kind<T>(result: Result<T, Refusal>) -> &'static str {
    result.err().map_or("ok", |refusal| refusal.kind())
}

/// A node that serves the shim, with one pod of each kind.
fn shimmed() -> Node {
    let mut node = Node::new(3);
    node.restart(Tier::Shim);
    let burst = pod("burst", &[("gpu", "1"), ("gpumem", "300"), ("gpucores", "30")]);
    node.pods.push(annotated(annotated(burst, key::COMPUTE_LIMIT, "60"), key::PRIORITY, "low"));
    node.serve(1).expect("fits");
    node.pods.push(part("cap", "300"));
    node.serve(1).expect("fits");
    node.pods.push(annotated(pod("whole", &[("gpu", "1")]), key::TIER, "shim"));
    node.serve(1).expect("fits");
    node
}

fn terms(node: &Node, pod: &str) -> (Tier, Compute) {
    let limits = node.written(pod, "c0");
    (limits.terms.tier, limits.terms.compute)
}

/// Pods, by name, that the clock is told of, with their cards and cores.
fn paced(node: &Node) -> Vec<(&'static str, Vec<(CardId, u32)>)> {
    let named = |nonce| {
        let pods = ["burst", "cap", "whole", "old", "client"];
        let held = |pod: &&str| node.holding(pod, "c0").is_some_and(|holding| holding.nonce == nonce);
        pods.into_iter().find(held).expect("one of ours")
    };
    let view = tenants(&node.allocator, None).expect("a ledger that is new");
    let cores = |(card, cores): &(CardId, Cores)| (card.clone(), cores.units());
    let mut tenants: Vec<_> =
        view.tenants.iter().map(|tenant| (named(tenant.nonce), tenant.cards.iter().map(cores).collect())).collect();
    tenants.sort();
    tenants
}

#[test]
fn node_with_library_serves_shim_with_cap_by_default() {
    let node = shimmed();
    assert_eq!(terms(&node, "burst"), (Tier::Shim, Compute::Burst));
    assert_eq!(terms(&node, "cap"), (Tier::Shim, Compute::Cap));
    assert_eq!(terms(&node, "whole"), (Tier::Shim, Compute::Cap));
    let card = slot("GPU-0::0").card;
    assert_eq!(paced(&node), [("burst", vec![(card.clone(), 30)]), ("cap", vec![(card, 0)])]);
    let view = tenants(&node.allocator, None).expect("a ledger that is new");
    let last = view.tenants.iter().filter(|tenant| tenant.priority == Some(Priority::Low));
    assert_eq!(last.map(|tenant| tenant.cards[0].1.units()).collect::<Vec<_>>(), [30]);
    let revision = node.allocator.ledger().revision();
    assert!(tenants(&node.allocator, Some(revision)).is_none(), "nothing is new");
}

#[test]
fn pod_cannot_demand_a_stronger_tier_than_the_node() {
    let mut node = Node::new(1);
    node.restart(Tier::Shim);
    node.pods.push(annotated(part("a", "100"), key::TIER, "mps"));
    assert_eq!(kind(node.propose(1)), "tier");
    node.pods.push(annotated(part("b", "100"), key::TIER, "accounting"));
    node.serve(1).expect("at least that");
}

#[test]
fn limits_of_running_containers_state_a_weaker_tier() {
    let mut node = shimmed();
    node.restart(Tier::Accounting);
    for pod in ["burst", "cap", "whole"] {
        assert_eq!(terms(&node, pod).0, Tier::Accounting);
    }
    assert_eq!(paced(&node), []);
    node.restart(Tier::Shim);
    assert_eq!(terms(&node, "burst"), (Tier::Shim, Compute::Burst), "it has the library still");
    assert_eq!(paced(&node).len(), 2);
}

#[test]
fn container_without_library_stays_without() {
    let mut node = Node::new(1);
    node.pods.push(part("old", "300"));
    let slots = node.propose(1).expect("fits");
    node.allocate(&slots).expect("fits");
    node.restart(Tier::Shim);
    assert_eq!(terms(&node, "old").0, Tier::Accounting);
    assert_eq!(paced(&node), []);
    node.allocator.pre_start(&slots).expect("written");
    assert_eq!(terms(&node, "old").0, Tier::Accounting);
}

#[test]
fn limits_tell_the_terms_of_a_pod_that_the_journal_has_lost() {
    let mut node = shimmed();
    let limits = node.limits("burst", "c0");
    node.lose_journal();
    let found = node.containers.find("uid-burst", "c0").expect("its directories");
    assert!(limits.to_str().expect("text").contains(&found.nonce.to_string()));
    let (compute_limit, priority) = (ComputeLimit::new(60), Some(Priority::Low));
    assert_eq!(found.terms, Terms { tier: Tier::Shim, compute: Compute::Burst, compute_limit, priority });
}

#[test]
fn node_with_mps_serves_it_and_older_containers_keep_theirs() {
    let mut node = shimmed();
    let place = MpsDirectory::new(&node.directory.path().join("run"));
    place.create().expect("directories");
    let up = place.mark_ready().expect("a lock");
    node.restart(Tier::Mps);
    assert_eq!(terms(&node, "burst"), (Tier::Shim, Compute::Burst));
    node.pods.push(annotated(part("client", "300"), key::TIER, "mps"));
    let slots = node.propose(1).expect("fits");
    node.allocate(&slots).expect("fits");
    assert_eq!(terms(&node, "client"), (Tier::Mps, Compute::Cap));
    assert_eq!(paced(&node).len(), 2, "the driver needs no clock");
    drop(up);
    node.pods.push(part("late", "300"));
    assert_eq!(kind(node.serve(1)), "delivery");
    assert!(node.allocator.pre_start(&slots).is_err());
    node.restart(Tier::Shim);
    assert_eq!(terms(&node, "client").0, Tier::Shim, "a node that serves less says so");
}

#[test]
fn whole_instances_are_not_paced() {
    let mut node = Node::new(4);
    for (number, (card, device)) in node.cards.iter_mut().take(3).enumerate() {
        device.place = Some(MigPlace { gpu: card.id.clone(), gi: 1, ci: 0 });
        card.mig = Some(MigInstance { profile: "1g.10gb".parse().expect("a profile"), by_profile: false });
        card.id = format!("MIG-{number}").parse().expect("a UUID");
    }
    node.restart(Tier::Shim);
    node.pods.push(pod("whole", &[("gpu", "1"), ("gpumem", "1000"), ("gpucores", "100")]));
    node.allocate(&[slot("MIG-0::0")]).expect("fits");
    node.pods.push(part("part", "50"));
    node.allocate(&[slot("MIG-1::0")]).expect("fits");
    node.pods.push(pod("gpu", &[("gpu", "1")]));
    node.allocate(&[slot("GPU-3::0")]).expect("fits");
    let tier = |pod| node.written(pod, "c0").terms.tier;
    assert_eq!(["whole", "part", "gpu"].map(tier), [Tier::Mig, Tier::Shim, Tier::Shim]);
    assert_eq!(
        tenants(&node.allocator, None).expect("a ledger that is new").tenants.len(),
        1,
        "the hardware needs no clock"
    );
}

#[test]
fn ended_container_loses_its_directories() {
    let mut node = Node::new(1);
    node.pods.push(part("a", "100"));
    node.serve(1).expect("fits");
    let limits = node.limits("a", "c0");
    assert!(limits.exists());
    let request = node.allocator.begin_list();
    Arc::make_mut(&mut node.pods[0]).phase = Phase::Succeeded;
    let list = PodList { pods: node.pods.clone(), connection: None };
    node.allocator.reconcile(&list, request, true, &HashMap::new()).expect("written");
    let ended = node.allocator.take_ended();
    node.allocator.containers().remove(ended);
    assert!(!limits.exists());
}

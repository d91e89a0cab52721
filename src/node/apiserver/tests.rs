use std::collections::BTreeMap;

use divvy_api::annotation;
use divvy_api::gpunode::{HealthStatus, Oversubscription};
use divvy_api::links::LinkedCards;
use divvy_api::names::annotation::PLANNED;
use divvy_api::request::Sharing;
use divvy_api::{
    Card, CardId, ContainerKind, ContainerRequest, Cores, GpuRequest, Health, Link, Links, Memory, MemoryAmount,
    MigInstance, Terms, Totals,
};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::events::changes::between;
use super::gpu_node::status;
use super::node::facts::NodeStatusView;
use super::node::{NodeFacts, labels};
use super::pods::annotation as pod_annotation;
use super::removal::Removal;
use super::*;
use divvy_node_core::allocator::{ForeignHeld, ForeignPod};
use divvy_node_core::amounts::allocatable;
use divvy_node_core::inventory::{DeviceInfo, Driver, Inventory};
use divvy_node_core::ledger::{Allocations, Holding, Ledger, Nonce, Origin, Part};
use divvy_node_core::pod::{Phase, Pod, PodRef};

const WHOLE: Scales = Scales::WHOLE;
const CARD: Memory = Memory::mib(80_000);

fn card(number: usize) -> CardId {
    format!("GPU-{number}").parse().expect("a UUID")
}

/// GPUs of a node of tier `accounting`.
fn inventory(count: usize) -> Inventory {
    linked(count, |_, _| Link::NvLink(18))
}

fn linked(count: usize, link: fn(usize, usize) -> Link) -> Inventory {
    let found = |number| Card {
        model: "NVIDIA H100 80GB HBM3".into(),
        numa: Some(0),
        slots: 32,
        ..Card::healthy(card(number), CARD)
    };
    let cards = (0..count).map(|number| (found(number), DeviceInfo::default()));
    let driver = Some(Driver { version: "580.95.05".to_owned(), cuda: Some("13.0".to_owned()) });
    Inventory { driver, ..Inventory::new(cards, Links::new(count, link)) }
}

fn cards(inventory: &mut Inventory) -> &mut [Card] {
    &mut Arc::make_mut(&mut inventory.node).cards
}

/// The same GPUs on a node of this configuration.
fn configured(mut inventory: Inventory, scales: Scales, tier: Tier) -> Inventory {
    for card in cards(&mut inventory) {
        (card.scales, card.tier) = (scales, tier);
    }
    inventory
}

fn sick(inventory: &Inventory, number: usize) -> Inventory {
    let mut inventory = inventory.clone();
    cards(&mut inventory)[number].health = Health::unhealthy("XID 79");
    inventory
}

/// Books in which each request is held by a pod of its own, on the card of its number.
fn held(requests: &[(usize, GpuRequest, Totals)]) -> Allocations {
    held_by(requests, Sharing::Part)
}

fn held_by(requests: &[(usize, GpuRequest, Totals)], sharing: Sharing) -> Allocations {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut ledger, _) = Ledger::open(directory.path()).expect("an empty ledger");
    for (at, (number, request, counted)) in requests.iter().enumerate() {
        let name = format!("p{at}");
        let pod = PodRef { uid: format!("u{at}"), namespace: "ns".to_owned(), name };
        let container = ContainerRequest {
            name: "main".to_owned(),
            kind: ContainerKind::App,
            request: Some(*request),
            profile: None,
            counted: *counted,
        };
        let slot = u32::try_from(at).expect("few");
        let share = request.share_of(CARD, sharing);
        let part = Part { card: card(*number), slot: Some(slot), lost: None, share };
        let nonce: Nonce = format!("{at:032x}").parse().expect("a nonce");
        let holding = Holding { nonce, parts: vec![part], origin: Origin::Allocated, terms: Terms::default() };
        ledger.allocate(&pod, &[container], "main", holding).expect("booked");
    }
    ledger.allocations().clone()
}

fn view(inventory: Inventory, allocations: Allocations) -> View {
    View {
        revision: 7,
        allocations: Arc::new(allocations),
        inventory: Arc::new(inventory),
        registered: true,
        ..View::default()
    }
}

fn request(memory: MemoryAmount, cores: u32) -> GpuRequest {
    GpuRequest { cards: 1, memory, cores: Cores::new(cores) }
}

fn mib(amount: u64) -> MemoryAmount {
    MemoryAmount::Absolute(Memory::mib(amount))
}

fn settings(scales: Scales, tier: Tier) -> PublishSettings {
    PublishSettings {
        node_name: "node".to_owned(),
        names: ResourceNames::default(),
        scales,
        tier,
        slots_per_card: 32,
        writes_node: true,
        utilization: false,
        state_dir: PathBuf::new(),
    }
}

/// Allocatable memory in MiB and in percent, and compute.
fn amounts(view: &View) -> [u64; 3] {
    let names = ResourceNames::default();
    allocatable(&view.allocations, &view.inventory.node, &view.unplaced, &names).map(|(_, amount)| amount)
}

#[test]
fn amounts_share_one_pool_across_resources() {
    let (absolute, percent) = (request(mib(20_000), 0), request(MemoryAmount::Percent(50), 30));
    let allocations = held(&[(0, absolute, absolute.totals()), (0, percent, percent.totals())]);
    let offered = amounts(&view(inventory(1), allocations));
    // 20 000 and 40 000 MiB are held, so 20 000 MiB, which are 25 %, are free.
    assert_eq!(offered, [40_000, 75, 100]);
}

#[test]
fn amounts_of_whole_and_unhealthy_gpus() {
    let (whole, part) = (GpuRequest::whole(1), request(mib(8000), 10));
    let plain = Totals { count: 1, ..Totals::default() };
    let allocations = held(&[(0, whole, plain), (1, part, part.totals())]);
    let offered = amounts(&view(sick(&inventory(3), 1), allocations));
    assert_eq!(offered, [88_000, 100, 110]);
}

#[test]
fn whole_card_fallback_publishes_requested_amount() {
    let asked = request(mib(20_000), 30).totals();
    let offered = amounts(&view(inventory(2), held(&[(0, GpuRequest::whole(1), asked)])));
    assert_eq!(offered, [20_000 + 80_000, 100, 30 + 100]);
}

#[test]
fn scales_multiply_free_amounts() {
    let scaled = configured(inventory(2), Scales { memory: 50, cores: 200 }, Tier::Accounting);
    let offered = amounts(&view(scaled, Allocations::default()));
    assert_eq!(offered, [80_000, 100, 400]);
}

#[test]
fn own_settings_of_a_gpu_are_offered_and_reported() {
    let mut inventory = configured(inventory(3), WHOLE, Tier::Shim);
    let cards = cards(&mut inventory);
    cards[0].scales.memory = 50;
    (cards[2].slots, cards[2].tier, cards[2].scales.cores) = (4, Tier::Accounting, 150);
    let view = view(inventory, Allocations::default());
    assert_eq!(amounts(&view), [40_000 + 80_000 + 80_000, 50 + 100 + 100, 100 + 100 + 150]);
    let status = status::status(&view, &settings(WHOLE, Tier::Shim), None, Timestamp::UNIX_EPOCH);
    assert_eq!((status.tier, status.scales, status.slots_per_card), (Tier::Accounting, WHOLE, Some(32)), "the weakest");
    let own = |at: usize| (status.cards[at].tier, status.cards[at].scales, status.cards[at].slots);
    assert_eq!(own(0), (Some(Tier::Shim), Some(Scales { memory: 50, cores: 100 }), None));
    assert_eq!(own(1), (Some(Tier::Shim), None, None));
    assert_eq!(own(2), (None, Some(Scales { memory: 100, cores: 150 }), Some(4)));
    assert_eq!(status.summary.memory, "0Mi/200000Mi");
    let replicas = labels::labels(&view.inventory).remove("nvidia.com/gpu.replicas");
    assert_eq!(replicas, None, "it would be true of two of them");
}

#[test]
fn oversubscribed_gpu_counts_what_can_still_be_requested() {
    let request = request(mib(30_000), 0);
    let allocations = held_by(&[(0, request, request.totals())], Sharing::Oversubscribed(150));
    let amounts = |host_mib| {
        let oversubscription = Oversubscription { memory_scale: 150, host_memory: Memory::mib(host_mib) };
        let mut node = Arc::unwrap_or_clone(inventory(2).node);
        node.oversubscription = Some(oversubscription);
        allocatable(&allocations, &node, &[], &ResourceNames::default()).map(|(_, amount)| amount)
    };
    // 20 000 of the first GPU's and 10 000 of the host's are held. The second GPU is empty, and takes any pod.
    assert_eq!(amounts(100_000), [30_000 + 90_000 + 80_000, 112 + 100, 200], "60 000 of the first GPU are 90 000");
    assert_eq!(amounts(30_000), [30_000 + 80_000 + 80_000, 100 + 100, 200], "the host has 20 000 left");
    assert_eq!(amounts(5_000), [30_000 + 60_000 + 80_000, 75 + 100, 200], "the host has less than is held");
}

proptest! {
    /// Whatever scheduler and kubelet may still take in one form, beyond what they count already, a card has.
    #[test]
    fn amounts_never_exceed_free_capacity(
        requests in prop::collection::vec((0..3usize, 1..40_000u64, 1..60u32, 0..50u32, any::<bool>()), 0..6),
    ) {
        let requests: Vec<(usize, GpuRequest, Totals)> = requests.into_iter().map(|(card, memory, percent, cores, form)| {
            let request = request(if form { mib(memory) } else { MemoryAmount::Percent(percent) }, cores);
            (card, request, request.totals())
        }).collect();
        let view = view(inventory(3), held(&requests));
        let [memory, percent, cores] = amounts(&view);
        let counted = |of: fn(&Totals) -> u64| requests.iter().map(|(_, _, counted)| of(counted)).sum::<u64>();
        let left = |number| {
            let held = view.allocations.held(&card(number), None);
            (CARD.saturating_sub(held.memory).as_mib(), u64::from(Cores::FULL.saturating_sub(held.cores).units()))
        };
        let free = (0..3).map(left).fold((0, 0), |sum, (memory, cores)| (sum.0 + memory, sum.1 + cores));
        prop_assert_eq!(memory - counted(|counted| counted.memory), free.0);
        prop_assert_eq!(cores - counted(|counted| counted.cores), free.1);
        prop_assert!((percent - counted(|counted| counted.percent)) * CARD.as_mib() <= free.0 * 100);
    }
}

fn facts() -> NodeFacts {
    NodeFacts {
        amounts: [("nvidia.com/gpumem".to_owned(), 80_000)].into(),
        labels: [("nvidia.com/gpu.count".to_owned(), "8".to_owned())].into(),
    }
}

fn node(capacity: &str, annotations: &[(&str, &str)], labels: &[(&str, &str)]) -> NodeView {
    let texts = |pairs: &[(&str, &str)]| {
        Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    };
    let mut node = NodeView::default();
    (node.metadata.annotations, node.metadata.labels) = (texts(annotations), texts(labels));
    let amounts = BTreeMap::from([("nvidia.com/gpumem".to_owned(), capacity.to_owned())]);
    node.status = NodeStatusView { capacity: amounts.clone(), allocatable: amounts };
    node
}

const OURS: [(&str, &str); 2] = [("divvy.dev/generation", "3"), ("divvy.dev/labels", "nvidia.com/gpu.count")];

#[test]
fn up_to_date_node_is_not_patched() {
    let labels = [("nvidia.com/gpu.count", "8")];
    assert_eq!(facts().patch(&node("80000", &OURS, &labels)), None);
    assert_eq!(facts().patch(&node("80k", &OURS, &labels)), None, "as the API server prints it");
}

#[test]
fn only_amounts_that_shrink_may_wait() {
    let offered = |memory| [("nvidia.com/gpumem".to_owned(), memory)].into();
    let labels = [("nvidia.com/gpu.count", "8")];
    let facts = facts();
    assert!(facts.only_shrink(&node("90k", &OURS, &labels), &offered(90_000)));
    assert!(!facts.only_shrink(&node("70k", &OURS, &labels), &offered(70_000)), "memory was released");
    assert!(!facts.only_shrink(&node("90k", &OURS, &labels), &offered(70_000)), "somebody else wrote it");
    assert!(!facts.only_shrink(&node("90k", &OURS, &[]), &offered(90_000)), "a label is missing");
    assert!(!facts.only_shrink(&node("90k", &OURS, &labels), &BTreeMap::new()), "an earlier daemon wrote it");
}

#[test]
fn refused_pod_is_kept_away_by_the_amounts() {
    let asked = request(MemoryAmount::Percent(60), 0);
    let allocations = held(&[(0, asked, asked.totals()), (1, asked, asked.totals())]);
    let view = View { unplaced: vec![GpuRequest::whole(1).totals()], ..view(inventory(2), allocations) };
    assert_eq!(amounts(&view), [64_000, 120 + 80, 200], "no sum lets it pass");
    let whole = Totals { percent: 75, ..GpuRequest::whole(1).totals() };
    let view = View { unplaced: vec![whole], ..view };
    assert_eq!(amounts(&view), [64_000, 120 + 74, 200], "120 are held, 80 free");
}

#[test]
fn shares_are_planned_if_every_pod_has_a_plan() {
    let asked = request(mib(20_000), 30);
    let allocations = held(&[(0, asked, asked.totals()), (0, asked, asked.totals())]);
    let listed = |uid: &str, planned: bool| {
        let annotations = if planned { [(PLANNED.to_owned(), "{}".to_owned())].into() } else { BTreeMap::new() };
        let (uid, namespace, name) = (uid.to_owned(), "ns".to_owned(), "p".to_owned());
        let (containers, states) = (Vec::new(), BTreeMap::new());
        Arc::new(Pod { uid, namespace, name, annotations, containers, phase: Phase::Running, states })
    };
    let view = |second: bool| View {
        listed: vec![listed("u0", true), listed("u1", second), listed("without a share", false)],
        ..view(inventory(1), allocations.clone())
    };
    assert!(view(true).is_planned());
    assert!(!view(false).is_planned());
    assert!(!View { listed: Vec::new(), ..view(true) }.is_planned(), "not listed yet");
}

#[test]
fn amounts_taken_away_by_hand_come_back() {
    let amounts = json!({ "nvidia.com/gpumem": "80000" });
    let patch = facts().patch(&node("0", &OURS, &[("nvidia.com/gpu.count", "8")]));
    assert_eq!(patch, Some(json!({ "status": { "capacity": amounts, "allocatable": amounts } })));
}

#[test]
fn only_what_pods_request_is_taken_off_and_put_back() {
    let mut node = node("80000", &[], &[]);
    for amounts in [&mut node.status.capacity, &mut node.status.allocatable] {
        amounts
            .extend([("cpu", "8"), ("nvidia.com/gpu", "64")].map(|(name, count)| (name.to_owned(), count.to_owned())));
    }
    let devices = ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"];
    let off = node.without_devices(&devices);
    assert_eq!(off, Some(json!({ "status": { "allocatable": { "nvidia.com/gpu": null } } })));
    let gone = json!({ "nvidia.com/gpumem": null });
    let amounts = ["nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"];
    assert_eq!(node.without_amounts(&amounts), Some(json!({ "status": { "capacity": gone, "allocatable": gone } })));
    let offered = BTreeMap::from([("nvidia.com/gpu".to_owned(), 64)]);
    assert_eq!(node.with_devices(&offered), None);
    node.status.allocatable.clear();
    node.status.capacity.clear();
    assert_eq!((node.without_devices(&devices), node.without_amounts(&amounts)), (None, None));
    let on = json!({ "status": { "allocatable": { "nvidia.com/gpu": "64" } } });
    assert_eq!(node.with_devices(&offered), Some(on));
}

#[test]
fn foreign_labels_are_kept() {
    let said = |annotations: &[(&str, &str)], labels: &[(&str, &str)]| {
        facts().patch(&node("80000", annotations, labels)).map(|patch| patch["metadata"]["labels"].clone())
    };
    assert_eq!(said(&[], &[]), Some(json!({ "nvidia.com/gpu.count": "8" })));
    assert_eq!(said(&OURS, &[("nvidia.com/gpu.count", "7")]), Some(json!({ "nvidia.com/gpu.count": "8" })), "healed");
    let foreign = said(&[("divvy.dev/labels", "")], &[("nvidia.com/gpu.count", "7")]);
    assert_eq!(foreign, None, "written by another before us");
    let gone = said(
        &[("divvy.dev/generation", "3"), ("divvy.dev/labels", "nvidia.com/gpu.count,nvidia.com/gpu.product")],
        &[("nvidia.com/gpu.count", "8"), ("nvidia.com/gpu.product", "T4")],
    );
    assert_eq!(gone, Some(json!({ "nvidia.com/gpu.product": null })), "no longer true");
    let discovered = [("nvidia.com/gpu.count", "7"), ("nvidia.com/gfd.timestamp", "1")];
    assert_eq!(said(&OURS, &discovered), Some(json!(null)), "GPU feature discovery owns the names");
}

#[test]
fn labels_describe_only_what_all_gpus_share() {
    let mut inventory = inventory(2);
    insta::assert_json_snapshot!(labels::labels(&inventory), @r#"
    {
      "nvidia.com/cuda.driver-version.full": "580.95.05",
      "nvidia.com/cuda.driver-version.major": "580",
      "nvidia.com/cuda.driver-version.minor": "95",
      "nvidia.com/cuda.driver-version.revision": "05",
      "nvidia.com/cuda.runtime-version.full": "13.0",
      "nvidia.com/cuda.runtime-version.major": "13",
      "nvidia.com/cuda.runtime-version.minor": "0",
      "nvidia.com/gpu.count": "2",
      "nvidia.com/gpu.memory": "80000",
      "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
      "nvidia.com/gpu.replicas": "32"
    }
    "#);
    cards(&mut inventory)[1].model = "NVIDIA A100".into();
    assert!(!labels::labels(&inventory).contains_key("nvidia.com/gpu.product"));
    assert!(labels::labels(&Inventory::default()).is_empty());
}

#[test]
fn status_shows_gpus_shares_and_conditions() {
    let part = request(mib(8192), 10);
    let view = view(sick(&inventory(2), 1), held(&[(0, part, part.totals())]));
    let then = Timestamp::from_second(1_790_000_000).expect("a time");
    let first = status::status(&view, &settings(WHOLE, Tier::Accounting), None, then);
    insta::assert_json_snapshot!(first);
    let later = Timestamp::from_second(1_790_000_060).expect("a time");
    let second = status::status(&view, &settings(WHOLE, Tier::Accounting), Some(&first), later);
    assert_eq!(first, second, "what hasn't changed keeps its time, and is not written again");
    let draining = View { draining: true, ..view };
    let third = status::status(&draining, &settings(WHOLE, Tier::Accounting), Some(&first), later);
    let times: Vec<i64> = third.conditions.iter().map(|c| c.last_transition_time.0.as_second()).collect();
    assert_eq!(
        times,
        [1_790_000_000, 1_790_000_000, 1_790_000_000, 1_790_000_000, 1_790_000_060],
        "of the condition that has changed"
    );
}

#[test]
fn gpus_that_only_the_system_links_have_no_links() {
    let links = |link: fn(usize, usize) -> Link| {
        let inventory = configured(linked(3, link), WHOLE, Tier::Shim);
        let status = status::status(
            &view(inventory, Allocations::default()),
            &settings(WHOLE, Tier::Shim),
            None,
            Timestamp::UNIX_EPOCH,
        );
        status.links
    };
    assert_eq!(links(|_, _| Link::System), []);
    let pair = LinkedCards { link: Link::Node, cards: vec![0, 1] };
    assert_eq!(links(|a, b| if (a, b) == (0, 1) { Link::Node } else { Link::System }), [pair]);
}

#[test]
fn status_lists_mig_instances_with_their_resource() {
    let mut inventory = configured(inventory(3), WHOLE, Tier::Shim);
    for (card, by_profile) in cards(&mut inventory)[1..].iter_mut().zip([false, true]) {
        card.mig = Some(MigInstance { profile: "1g.10gb".parse().expect("a profile"), by_profile });
    }
    let status = status::status(
        &view(inventory, Allocations::default()),
        &settings(WHOLE, Tier::Shim),
        None,
        Timestamp::UNIX_EPOCH,
    );
    let said: Vec<_> = status.cards.iter().map(|card| (card.mig.as_deref(), card.plain)).collect();
    assert_eq!(said, [(None, false), (Some("1g.10gb"), true), (Some("1g.10gb"), false)]);
}

#[test]
fn shares_name_the_kind_of_their_container() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut ledger, _) = Ledger::open(directory.path()).expect("an empty ledger");
    let pod = PodRef { uid: "u".to_owned(), namespace: "ns".to_owned(), name: "p".to_owned() };
    let kinds = [("prep", ContainerKind::Init), ("log", ContainerKind::Sidecar), ("main", ContainerKind::App)];
    let request = request(mib(8192), 10);
    let counted = request.totals();
    let containers = kinds.map(|(name, kind)| ContainerRequest {
        name: name.to_owned(),
        kind,
        request: Some(request),
        profile: None,
        counted,
    });
    for (slot, container) in (0..).zip(&containers) {
        let part = Part { card: card(0), slot: Some(slot), lost: None, share: request.share_on(CARD) };
        let holding =
            Holding { nonce: Nonce::random(), parts: vec![part], origin: Origin::Allocated, terms: Terms::default() };
        ledger.allocate(&pod, &containers, &container.name, holding).expect("booked");
    }
    let half = Scales { memory: 50, cores: 100 };
    let view = view(configured(inventory(1), half, Tier::Accounting), ledger.allocations().clone());
    let status = status::status(&view, &settings(half, Tier::Accounting), None, Timestamp::UNIX_EPOCH);
    let reported = serde_json::to_value(&status).expect("JSON");
    let kinds: Vec<_> = (0..3).map(|at| reported["shares"][at]["kind"].clone()).collect();
    assert_eq!(kinds, ["init", "sidecar", "app"]);
    assert_eq!(reported["scales"], json!({ "memory": 50, "cores": 100 }));
    assert_eq!(status.summary.memory, "16Gi/40000Mi", "the sidecar and one of the two others");
}

#[test]
fn cordon_lasts_until_the_gpunode_is_deleted() {
    let spec = GpuNodeSpec { unschedulable_cards: vec!["GPU-1".to_owned()], ..GpuNodeSpec::default() };
    let gpu_node = Cached::Present(Box::new(GpuNode::new("n1", spec)));
    let cordoned = wants(&Desired::default(), &Cached::Unknown, &gpu_node);
    assert_eq!(cordoned.unschedulable_cards, ["GPU-1".to_owned()].into());
    assert_eq!(wants(&cordoned, &Cached::Gone, &Cached::Unknown), cordoned);
    assert_eq!(wants(&cordoned, &Cached::Unknown, &Cached::Gone), Desired::default());
    let labelled = wants(&cordoned, &Cached::Present(Box::new(node("0", &[], &[("pool", "a")]))), &Cached::Unknown);
    assert_eq!((labelled.labels.len(), labelled.unschedulable_cards.len()), (1, 1));
}

#[test]
fn cordon_of_an_unknown_gpu_is_a_condition() {
    let view = View { unknown_cards: vec!["GPU-x".to_owned()], ..view(inventory(1), Allocations::default()) };
    let status = status::status(&view, &settings(WHOLE, Tier::Accounting), None, Timestamp::UNIX_EPOCH);
    let condition = status.conditions.iter().find(|condition| condition.type_ == "SpecApplied").expect("a condition");
    let said = format!("{} {}: {}", condition.status, condition.reason, condition.message);
    insta::assert_snapshot!(said, @"False UnknownCard: spec.unschedulableCards lists GPUs that this node doesn't have: GPU-x");
}

#[test]
fn cordon_is_reported_apart_from_what_ails_a_gpu() {
    let mut cordoned = sick(&inventory(3), 1);
    for card in &mut cards(&mut cordoned)[..2] {
        card.health = card.health.clone().cordoned();
    }
    let before = view(inventory(3), Allocations::default());
    let after = view(cordoned, Allocations::default());
    let status = status::status(&after, &settings(WHOLE, Tier::Accounting), None, Timestamp::UNIX_EPOCH);
    let said: Vec<_> = status.cards.iter().map(|card| (card.health, card.cordoned, card.reason.as_deref())).collect();
    let expected = [
        (HealthStatus::Unhealthy, true, None),
        (HealthStatus::Unhealthy, true, Some("XID 79")),
        (HealthStatus::Healthy, false, None),
    ];
    assert_eq!(said, expected);
    assert_eq!(status.summary.cards, "1/3");
    let notes: Vec<_> = between(&before, &after).into_iter().map(|event| event.note).collect();
    let accepts_none = ["GPU-0 accepts no new pods: cordoned", "GPU-1 accepts no new pods: cordoned; XID 79"];
    assert_eq!(notes, accepts_none.map(|note| format!("{note}; pods with a share of it: 0")));
}

#[test]
fn events_report_each_change_once() {
    let (well, part) = (inventory(2), request(mib(8192), 10));
    let allocations = held(&[(1, part, part.totals())]);
    let before = view(well.clone(), allocations.clone());
    let after = view(sick(&well, 1), allocations.clone());
    let notes = |before: &View, after: &View| between(before, after).into_iter().map(|h| h.note).collect::<Vec<_>>();
    assert_eq!(notes(&before, &after), ["GPU-1 accepts no new pods: XID 79; pods with a share of it: 1"]);
    assert_eq!(notes(&after, &after), Vec::<String>::new());
    assert_eq!(notes(&after, &before), ["GPU-1 accepts pods again"]);
    let pod = PodRef { uid: "u".to_owned(), namespace: "ns".to_owned(), name: "half".to_owned() };
    let unasked = View { unasked: vec![pod.clone()], ..before.clone() };
    let event = between(&before, &unasked);
    assert_eq!((event[0].pod.as_ref(), event[0].reason), (Some(&pod), "NoGpuRequested"));
    let (resource, held) = ("aliyun.com/gpu-mem".to_owned(), ForeignHeld::Cards(vec![card(0), card(1)]));
    let foreign = View { foreign: vec![ForeignPod { pod, resource, held }], ..before.clone() };
    let note = "uses GPU-0, GPU-1, allocated by another device plugin as aliyun.com/gpu-mem: it holds them alone until it ends";
    assert_eq!(notes(&before, &foreign), [note]);
    assert_eq!(notes(&foreign, &foreign), Vec::<String>::new());
}

#[test]
fn annotation_changes_only_with_its_own_pod() {
    let part = request(mib(8192), 10);
    let text = |allocations: &Allocations| {
        let view = view(inventory(2), allocations.clone());
        let texts = pod_annotation::annotations(&view, Tier::Shim).map(|(_, cards)| annotation::encode(&cards));
        texts.collect::<Vec<String>>()
    };
    let (alone, joined) =
        (held(&[(0, part, part.totals())]), held(&[(0, part, part.totals()), (1, part, part.totals())]));
    assert_eq!(text(&alone)[0], text(&joined)[0]);
    insta::assert_snapshot!(text(&alone)[0], @r#"{"version":"v1","ledgerRevision":1000001,"tier":"accounting","containers":{"main":[{"uuid":"GPU-0","memoryMi":8192,"cores":10}]}}"#);
}

#[test]
fn annotation_has_the_weakest_tier_of_a_pod() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut ledger, _) = Ledger::open(directory.path()).expect("an empty ledger");
    let pod = PodRef { uid: "u".to_owned(), namespace: "ns".to_owned(), name: "p".to_owned() };
    let requests =
        [("whole", GpuRequest::whole(1)), ("part", request(mib(10_000), 30))].map(|(name, request)| ContainerRequest {
            name: name.to_owned(),
            kind: ContainerKind::App,
            profile: None,
            request: Some(request),
            counted: request.totals(),
        });
    let mut given = |at: usize, instance: &str| {
        let ContainerRequest { name, request, .. } = &requests[at];
        let share = request.expect("requested").share_on(CARD);
        let part = Part { card: instance.parse().expect("a UUID"), slot: Some(0), lost: None, share };
        let terms = Terms { tier: Tier::Shim, ..Terms::default() };
        let holding = Holding { nonce: Nonce::random(), parts: vec![part], origin: Origin::Allocated, terms };
        ledger.allocate(&pod, &requests, name, holding).expect("booked");
        let view = view(inventory(1), ledger.allocations().clone());
        pod_annotation::annotations(&view, Tier::Shim).next().expect("a pod").1.tier
    };
    assert_eq!(given(0, "MIG-0"), Tier::Mig);
    assert_eq!(given(1, "MIG-1"), Tier::Shim);
}

#[test]
fn removal_deletes_only_divvys_fields() {
    let names = ResourceNames::default();
    let amounts = [&names.memory, &names.memory_percentage, &names.cores];
    let labels = [("nvidia.com/gpu.count", "8"), ("pool", "a")];
    let removal = Removal::new(&node("80000", &OURS, &labels), &amounts);
    assert_eq!(
        removal.patch,
        json!({
            "metadata": {
                "annotations": { "divvy.dev/generation": null, "divvy.dev/labels": null },
                "labels": { "nvidia.com/gpu.count": null },
            },
            "status": { "capacity": { "nvidia.com/gpumem": null }, "allocatable": { "nvidia.com/gpumem": null } },
        })
    );
    assert_eq!(
        removal.what,
        [
            "amount nvidia.com/gpumem",
            "label nvidia.com/gpu.count",
            "annotation divvy.dev/generation",
            "annotation divvy.dev/labels"
        ]
    );
    let discovered = [("nvidia.com/gpu.count", "8"), ("nvidia.com/gfd.timestamp", "1")];
    let removal = Removal::new(&node("80000", &OURS, &discovered), &amounts);
    assert_eq!(removal.patch["metadata"]["labels"], json!({}), "GPU feature discovery owns the names");
    let mut clean = node("0", &[], &labels);
    clean.status = NodeStatusView::default();
    assert!(Removal::new(&clean, &amounts).what.is_empty(), "a second removal finds nothing");
}

#[test]
fn violation_is_a_condition_while_active() {
    use divvy_api::usage::{NodeUsage, ShareViolation, ViolationKind};
    let mut view = view(configured(inventory(1), WHOLE, Tier::Shim), Allocations::default());
    let held = |view: &View| {
        let status = status::status(view, &settings(WHOLE, Tier::Shim), None, Timestamp::UNIX_EPOCH);
        let condition =
            status.conditions.into_iter().find(|condition| condition.type_ == "SharesHeld").expect("a condition");
        [condition.status, condition.reason, condition.message]
    };
    let finding = |kind| ShareViolation {
        kind,
        card: card(0),
        of: None,
        pids: vec![7],
        bytes: 1,
        seconds: 10,
        message: "with figures".to_owned(),
    };
    let mut said = vec![held(&view)];
    let findings = vec![finding(ViolationKind::Foreign), finding(ViolationKind::AboveShare)];
    view.usage = Arc::new(NodeUsage { findings, ..NodeUsage::default() });
    said.push(held(&view));
    view.usage = Arc::new(NodeUsage { unmeasured: Some("NVML is old".to_owned()), ..NodeUsage::default() });
    said.push(held(&view));
    insta::assert_debug_snapshot!(said);
}

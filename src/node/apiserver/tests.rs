use divvy_api::annotation::{self, Cards};
use divvy_api::{CardId, ContainerKind, ContainerRequest, Cores, GpuRequest, Memory, MemoryAmount, Totals};
use divvy_placement::{Link, Links};
use proptest::prelude::*;
use serde_json::json;

use super::events::between;
use super::node::{NodeStatusView, NodeView};
use super::*;
use divvy_node_core::inventory::{CardHealth, CardInfo, Driver, MigInstance};
use divvy_node_core::ledger::{Holding, Ledger, Nonce, Origin, Part, Terms};

const WHOLE: Scales = Scales::WHOLE;
const CARD: Memory = Memory::mib(80_000);

fn card(number: usize) -> CardId {
    format!("GPU-{number}").parse().expect("a UUID")
}

fn inventory(cards: usize) -> Inventory {
    let info = |number| CardInfo {
        id: card(number),
        model: "NVIDIA H100 80GB HBM3".to_owned(),
        memory: CARD,
        pci_bus_id: String::new(),
        minor: None,
        numa: Some(0),
        mig: None,
        health: CardHealth::Healthy,
        memory_used: None,
        utilization: None,
        processes: None,
    };
    Inventory {
        driver: Some(Driver { version: "580.95.05".to_owned(), cuda: Some("13.0".to_owned()) }),
        cards: (0..cards).map(info).collect(),
        links: Links::new(cards, |_, _| Link::NvLink(18)),
        problem: None,
    }
}

fn sick(inventory: &Inventory, number: usize) -> Inventory {
    let mut inventory = inventory.clone();
    inventory.cards[number].health = CardHealth::Unhealthy { reason: "XID 79".to_owned() };
    inventory
}

/// Books in which each request is held by a pod of its own, on the card of its number.
fn held(requests: &[(usize, GpuRequest, Totals)]) -> Book {
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
        let part = Part { card: card(*number), slot: Some(slot), lost: None, share: request.share_on(CARD) };
        let nonce: Nonce = format!("{at:032x}").parse().expect("a nonce");
        let holding = Holding { nonce, parts: vec![part], origin: Origin::Allocated, terms: Terms::default() };
        ledger.allocate(&pod, &[container], "main", holding).expect("booked");
    }
    ledger.book().clone()
}

fn view(inventory: Inventory, book: Book) -> View {
    View { revision: 7, book: Arc::new(book), inventory: Arc::new(inventory), registered: true, ..View::default() }
}

fn request(memory: MemoryAmount, cores: u32) -> GpuRequest {
    GpuRequest { cards: 1, memory, cores: Cores::new(cores) }
}

fn mib(amount: u64) -> MemoryAmount {
    MemoryAmount::Absolute(Memory::mib(amount))
}

fn amounts(view: &View, scales: Scales) -> Amounts {
    Amounts::of(&view.book, &view.inventory, scales)
}

#[test]
fn a_share_in_one_form_comes_out_of_what_is_free_in_the_others() {
    let (absolute, percent) = (request(mib(20_000), 0), request(MemoryAmount::Percent(50), 30));
    let book = held(&[(0, absolute, absolute.totals()), (0, percent, percent.totals())]);
    let offered = amounts(&view(inventory(1), book), WHOLE);
    // 20 000 and 40 000 MiB are held, so 20 000 MiB, which are 25 %, are free.
    assert_eq!(offered, Amounts { memory: 40_000, percent: 75, cores: 100 });
}

#[test]
fn whole_cards_offer_nothing_and_sick_ones_what_they_hold() {
    let (whole, part) = (GpuRequest::whole(1), request(mib(8000), 10));
    let plain = Totals { count: 1, ..Totals::default() };
    let book = held(&[(0, whole, plain), (1, part, part.totals())]);
    let offered = amounts(&view(sick(&inventory(3), 1), book), WHOLE);
    assert_eq!(offered, Amounts { memory: 88_000, percent: 100, cores: 110 });
}

#[test]
fn who_was_given_all_of_a_card_for_a_part_offers_what_he_asked_for_and_takes_the_rest_away() {
    let asked = request(mib(20_000), 30).totals();
    let offered = amounts(&view(inventory(2), held(&[(0, GpuRequest::whole(1), asked)])), WHOLE);
    assert_eq!(offered, Amounts { memory: 20_000 + 80_000, percent: 100, cores: 30 + 100 });
}

#[test]
fn a_scale_stretches_what_is_free() {
    let offered = amounts(&view(inventory(2), Book::default()), Scales { memory: 150, cores: 200 });
    assert_eq!(offered, Amounts { memory: 240_000, percent: 300, cores: 400 });
}

proptest! {
    /// Whatever scheduler and kubelet may still take in one form, beyond what they count already, a card has.
    #[test]
    fn no_form_offers_more_than_is_free(
        requests in prop::collection::vec((0..3usize, 1..40_000u64, 1..60u32, 0..50u32, any::<bool>()), 0..6),
    ) {
        let requests: Vec<(usize, GpuRequest, Totals)> = requests.into_iter().map(|(card, memory, percent, cores, form)| {
            let request = request(if form { mib(memory) } else { MemoryAmount::Percent(percent) }, cores);
            (card, request, request.totals())
        }).collect();
        let view = view(inventory(3), held(&requests));
        let offered = amounts(&view, WHOLE);
        let counted = |of: fn(&Totals) -> u64| requests.iter().map(|(_, _, counted)| of(counted)).sum::<u64>();
        let left = |number| {
            let held = view.book.held(&card(number), None);
            (CARD.saturating_sub(held.memory).as_mib(), u64::from(Cores::FULL.saturating_sub(held.cores).units()))
        };
        let free = (0..3).map(left).fold((0, 0), |sum, (memory, cores)| (sum.0 + memory, sum.1 + cores));
        prop_assert_eq!(offered.memory - counted(|counted| counted.memory), free.0);
        prop_assert_eq!(offered.cores - counted(|counted| counted.cores), free.1);
        prop_assert!((offered.percent - counted(|counted| counted.percent)) * CARD.as_mib() <= free.0 * 100);
    }
}

fn facts() -> NodeFacts {
    NodeFacts {
        amounts: [("nvidia.com/gpumem".to_owned(), 80_000)].into(),
        labels: [("nvidia.com/gpu.count".to_owned(), "8".to_owned())].into(),
        generation: 3,
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
fn a_node_that_says_it_all_is_left_alone() {
    let labels = [("nvidia.com/gpu.count", "8")];
    assert_eq!(facts().patch(&node("80000", &OURS, &labels)), None);
    assert_eq!(facts().patch(&node("80k", &OURS, &labels)), None, "as the API server prints it");
}

#[test]
fn amounts_taken_away_by_hand_come_back() {
    let amounts = json!({ "nvidia.com/gpumem": "80000" });
    let patch = facts().patch(&node("0", &OURS, &[("nvidia.com/gpu.count", "8")]));
    assert_eq!(patch, Some(json!({ "status": { "capacity": amounts, "allocatable": amounts } })));
}

#[test]
fn labels_of_others_are_never_ours() {
    let said = |annotations: &[(&str, &str)], labels: &[(&str, &str)]| {
        facts().patch(&node("80000", annotations, labels)).map(|patch| patch["metadata"]["labels"].clone())
    };
    assert_eq!(said(&[], &[]), Some(json!({ "nvidia.com/gpu.count": "8" })));
    assert_eq!(said(&OURS, &[("nvidia.com/gpu.count", "7")]), Some(json!({ "nvidia.com/gpu.count": "8" })), "healed");
    let foreign = said(&[("divvy.dev/generation", "3")], &[("nvidia.com/gpu.count", "7")]);
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
fn a_node_is_labelled_by_what_is_true_of_all_its_cards() {
    let mut inventory = inventory(2);
    insta::assert_json_snapshot!(labels::labels(&inventory, 32), @r#"
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
    inventory.cards[1].model = "NVIDIA A100".to_owned();
    assert!(!labels::labels(&inventory, 32).contains_key("nvidia.com/gpu.product"));
    assert!(labels::labels(&Inventory::default(), 32).is_empty());
}

#[test]
fn the_status_of_a_node() {
    let part = request(mib(8192), 10);
    let view = view(sick(&inventory(2), 1), held(&[(0, part, part.totals())]));
    let then = Timestamp::from_second(1_790_000_000).expect("a time");
    let first = status::status(&view, WHOLE, Tier::Accounting, None, then);
    insta::assert_json_snapshot!(first);
    let later = Timestamp::from_second(1_790_000_060).expect("a time");
    let second = status::status(&view, WHOLE, Tier::Accounting, Some(&first), later);
    assert_eq!(first, second, "what hasn't changed keeps its time, and is not written again");
    let draining = View { draining: true, ..view };
    let third = status::status(&draining, WHOLE, Tier::Accounting, Some(&first), later);
    let times: Vec<i64> = third.conditions.iter().map(|c| c.last_transition_time.0.as_second()).collect();
    assert_eq!(
        times,
        [1_790_000_000, 1_790_000_000, 1_790_000_000, 1_790_000_000, 1_790_000_060],
        "of the condition that has changed"
    );
}

#[test]
fn the_status_says_which_cards_are_instances_and_how_they_are_asked_for() {
    let mut inventory = inventory(3);
    for (card, by_profile) in inventory.cards[1..].iter_mut().zip([false, true]) {
        let (profile, parent) = ("1g.10gb".parse().expect("a profile"), "GPU-0".parse().expect("a UUID"));
        card.mig = Some(MigInstance { profile, parent, gi: 1, ci: 0, by_profile });
    }
    let status = status::status(&view(inventory, Book::default()), WHOLE, Tier::Shim, None, Timestamp::UNIX_EPOCH);
    let said: Vec<_> = status.cards.iter().map(|card| (card.mig.as_deref(), card.plain)).collect();
    assert_eq!(said, [(None, false), (Some("1g.10gb"), true), (Some("1g.10gb"), false)]);
}

#[test]
fn shares_say_which_of_them_are_held_one_after_another() {
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
    let view = view(inventory(1), ledger.book().clone());
    let twice = Scales { memory: 200, cores: 100 };
    let status = status::status(&view, twice, Tier::Accounting, None, Timestamp::UNIX_EPOCH);
    let told = serde_json::to_value(&status).expect("JSON");
    let kinds: Vec<_> = (0..3).map(|at| told["shares"][at]["kind"].clone()).collect();
    assert_eq!(kinds, ["init", "sidecar", "app"]);
    assert_eq!(told["scales"], json!({ "memory": 200, "cores": 100 }));
    assert_eq!(status.summary.memory, "16Gi/160000Mi", "the sidecar and one of the two others");
}

#[test]
fn a_cordon_holds_while_the_api_server_is_silent_and_ends_with_its_object() {
    let spec = GpuNodeSpec { unschedulable_cards: vec!["GPU-1".to_owned()], ..GpuNodeSpec::default() };
    let gpu_node = Seen::There(Box::new(GpuNode::new("n1", spec)));
    let cordoned = wants(&Desired::default(), &Seen::Unknown, &gpu_node);
    assert_eq!(cordoned.unschedulable_cards, ["GPU-1".to_owned()].into());
    assert_eq!(wants(&cordoned, &Seen::Gone, &Seen::Unknown), cordoned);
    assert_eq!(wants(&cordoned, &Seen::Unknown, &Seen::Gone), Desired::default());
    let labelled = wants(&cordoned, &Seen::There(Box::new(node("0", &[], &[("pool", "a")]))), &Seen::Unknown);
    assert_eq!((labelled.labels.len(), labelled.unschedulable_cards.len()), (1, 1));
}

#[test]
fn a_cordon_of_a_card_that_is_not_there_is_a_condition() {
    let view = View { unknown_cards: vec!["GPU-x".to_owned()], ..view(inventory(1), Book::default()) };
    let status = status::status(&view, WHOLE, Tier::Accounting, None, Timestamp::UNIX_EPOCH);
    let condition = status.conditions.iter().find(|condition| condition.type_ == "SpecApplied").expect("a condition");
    let said = format!("{} {}: {}", condition.status, condition.reason, condition.message);
    insta::assert_snapshot!(said, @"False UnknownCard: spec.unschedulableCards names cards that this node doesn't have: GPU-x");
}

#[test]
fn events_tell_what_has_changed_once() {
    let (well, part) = (inventory(2), request(mib(8192), 10));
    let book = held(&[(1, part, part.totals())]);
    let before = view(well.clone(), book.clone());
    let after = view(sick(&well, 1), book.clone());
    let notes = |before: &View, after: &View| between(before, after).into_iter().map(|h| h.note).collect::<Vec<_>>();
    assert_eq!(notes(&before, &after), ["card GPU-1 takes no new pods: XID 79; pods that hold shares of it: 1"]);
    assert_eq!(notes(&after, &after), Vec::<String>::new());
    assert_eq!(notes(&after, &before), ["card GPU-1 takes pods again"]);
    let pod = PodRef { uid: "u".to_owned(), namespace: "ns".to_owned(), name: "half".to_owned() };
    let unasked = View { unasked: vec![pod.clone()], ..before.clone() };
    let happening = between(&before, &unasked);
    assert_eq!((happening[0].pod.as_ref(), happening[0].reason), (Some(&pod), "NoCardAsked"));
}

#[test]
fn a_pods_annotation_changes_with_its_own_entry_alone() {
    let part = request(mib(8192), 10);
    let text = |book: &Book| {
        let view = view(inventory(2), book.clone());
        let texts: Vec<String> = cards::annotations(&view, Tier::Shim).map(|(_, text)| text).collect();
        texts
    };
    let (alone, joined) =
        (held(&[(0, part, part.totals())]), held(&[(0, part, part.totals()), (1, part, part.totals())]));
    assert_eq!(text(&alone)[0], text(&joined)[0]);
    insta::assert_snapshot!(text(&alone)[0], @r#"{"version":"v1","ledgerRevision":1000001,"tier":"accounting","containers":{"main":[{"uuid":"GPU-0","memoryMi":8192,"cores":10}]}}"#);
}

#[test]
fn an_annotation_says_how_the_weakest_of_a_pods_containers_is_enforced() {
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
        let view = view(inventory(1), ledger.book().clone());
        let text = cards::annotations(&view, Tier::Shim).next().expect("a pod").1;
        annotation::decode::<Cards>(&text).expect("it is ours").tier
    };
    assert_eq!(given(0, "MIG-0"), Tier::Mig);
    assert_eq!(given(1, "MIG-1"), Tier::Shim);
}

#[test]
fn a_removal_takes_off_what_is_ours_and_nothing_else() {
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
fn a_finding_is_a_condition_until_it_is_over() {
    use divvy_api::usage::{Finding, FindingKind, NodeUsage};
    let mut view = view(inventory(1), Book::default());
    let held = |view: &View| {
        let status = status::status(view, WHOLE, Tier::Shim, None, Timestamp::UNIX_EPOCH);
        let condition =
            status.conditions.into_iter().find(|condition| condition.type_ == "SharesHeld").expect("a condition");
        [condition.status, condition.reason, condition.message]
    };
    let finding = |kind| Finding {
        kind,
        card: card(0),
        of: None,
        pids: vec![7],
        bytes: 1,
        seconds: 10,
        message: "with figures".to_owned(),
    };
    let mut said = vec![held(&view)];
    let findings = vec![finding(FindingKind::Foreign), finding(FindingKind::AboveShare)];
    view.usage = Arc::new(NodeUsage { findings, ..NodeUsage::default() });
    said.push(held(&view));
    view.usage = Arc::new(NodeUsage { unmeasured: Some("NVML is old".to_owned()), ..NodeUsage::default() });
    said.push(held(&view));
    insta::assert_debug_snapshot!(said);
}

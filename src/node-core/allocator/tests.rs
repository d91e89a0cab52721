pub(crate) mod fixture;
pub(crate) mod foreign;
mod hardware;
mod oversubscription;
mod reconcile;
mod unplaced;

use divvy_api::annotation::{self, Planned, PlannedCards, PolicyName};
use divvy_api::names::annotation as key;

use self::fixture::{NODE, Node, annotated, cards, part, pod, slot};
use super::*;
use divvy_api::ContainerKind;

use crate::pod::{ContainerState, Phase, PodList};

fn kind<T>(result: Result<T, Refusal>) -> &'static str {
    result.err().map_or("ok", |refusal| refusal.kind())
}

fn proposed_kind(answer: Option<Result<ContainerResponse, Refusal>>) -> &'static str {
    answer.map_or("not proposed", kind)
}

/// What [`Node::held`] says of a part of one card.
fn of(card: &str, mib: u64) -> Vec<(String, u64)> {
    vec![(card.to_owned(), mib)]
}

#[test]
fn first_call_plans_the_whole_pod() {
    let mut node = Node::new(2, PolicyName::Spread);
    node.hold("other", &slot("GPU-1::0"), 300);
    node.pods.push(pod("a", &[&[("gpu", "1"), ("gpumem", "300")], &[("gpu", "1")]]));
    assert_eq!(
        node.serve(1).expect("fits"),
        ["GPU-1"],
        "the emptier card is left to the container that needs it whole"
    );
    assert_eq!(node.serve(1).expect("fits"), ["GPU-0"]);
    assert_eq!((node.held("a", "c0"), node.held("a", "c1")), (of("GPU-1", 300), of("GPU-0", 1000)));
}

#[test]
fn pod_that_fits_in_part_gets_nothing() {
    let mut node = Node::new(1, PolicyName::Spread);
    node.pods.push(pod("a", &[&[("gpu", "1"), ("gpumem", "300")], &[("gpu", "1"), ("gpumem", "800")]]));
    assert_eq!(kind(node.propose(1)), "no-fit");
}

#[test]
fn next_container_follows_the_plan_while_it_fits() {
    let two = pod("a", &[&[("gpu", "1"), ("gpumem", "300")], &[("gpu", "1"), ("gpumem", "300")]]);
    let next_after = |mib| {
        let mut node = Node::new(2, PolicyName::Spread);
        node.pods.push(Arc::clone(&two));
        assert_eq!(node.serve(1).expect("fits"), ["GPU-0"]);
        node.hold("late", &slot("GPU-1::3"), mib);
        node.serve(1).expect("fits")
    };
    assert_eq!(next_after(650), ["GPU-1"], "planned there, though a new plan would spread to the other card");
    assert_eq!(next_after(750), ["GPU-0"], "planned again");
}

#[test]
fn proposal_is_valid_for_one_allocate() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(pod("a", &[&[("gpu", "1"), ("gpumem", "100")], &[("gpu", "1"), ("gpumem", "200")]]));
    let slots = node.propose(1).expect("fits");
    assert_eq!(proposed_kind(node.allocator.allocate_proposed(&slots)), "ok");
    assert_eq!(proposed_kind(node.allocator.allocate_proposed(&slots)), "not proposed");
    assert_eq!((node.held("a", "c0"), node.held("a", "c1")), (of("GPU-0", 100), vec![]));
}

#[test]
fn other_slots_than_the_proposed_ones_use_the_proposal_up() {
    let mut node = Node::new(2, PolicyName::Binpack);
    node.pods.push(part("a", "100"));
    let slots = node.propose(1).expect("fits");
    let others = [slot("GPU-1::3")];
    assert_eq!(proposed_kind(node.allocator.allocate_proposed(&others)), "not proposed");
    assert_eq!(proposed_kind(node.allocator.allocate_proposed(&slots)), "not proposed");
}

#[test]
fn proposal_is_checked_again_after_a_ledger_change() {
    let late = |mib| {
        let mut node = Node::new(1, PolicyName::Binpack);
        node.pods.push(part("a", "600"));
        let slots = node.propose(1).expect("fits");
        node.hold("late", &slot("GPU-0::3"), mib);
        (proposed_kind(node.allocator.allocate_proposed(&slots)), node.held("a", "c0"))
    };
    assert_eq!(late(400), ("ok", of("GPU-0", 600)));
    assert_eq!(late(401), ("no-fit", vec![]));
}

#[test]
fn proposal_is_checked_again_after_an_inventory_change() {
    let mut node = Node::new(2, PolicyName::Binpack);
    node.pods.push(part("a", "600"));
    let slots = node.propose(1).expect("fits");
    assert_eq!(cards(&slots), ["GPU-0"]);
    node.set_health(0, divvy_api::Health::unhealthy("XID 79"));
    assert_eq!(proposed_kind(node.allocator.allocate_proposed(&slots)), "no-fit");
    assert_eq!(node.held("a", "c0"), []);
}

#[test]
fn unproposed_slots_are_checked() {
    let mut node = Node::new(2, PolicyName::Binpack);
    node.hold("other", &slot("GPU-0::0"), 500);
    node.pods.push(part("a", "500"));
    node.allocate(&[slot("GPU-0::1")]).expect("fits");
    node.pods.push(part("b", "1"));
    assert_eq!(kind(node.allocate(&[slot("GPU-0::2")])), "no-fit");
    node.pods.push(pod("c", &[&[("gpu", "2"), ("gpumem", "1")]]));
    assert_eq!(kind(node.allocate(&[slot("GPU-1::0"), slot("GPU-1::1")])), "same-card");
    for unknown in ["GPU-1::4", "GPU-2::0"] {
        node.pods.push(part(unknown, "1"));
        assert_eq!(kind(node.allocate(&[slot(unknown)])), "unknown-slot");
    }
    assert_eq!(node.allocator.ledger().allocations().pods().count(), 2);
}

#[test]
fn slots_that_leave_no_room_for_the_rest_of_the_pod_are_refused() {
    let mut node = Node::new(2, PolicyName::Binpack);
    node.hold("other", &slot("GPU-1::0"), 300);
    node.pods.push(pod("a", &[&[("gpu", "1"), ("gpumem", "300")], &[("gpu", "1")]]));
    assert_eq!(kind(node.allocate(&[slot("GPU-0::0")])), "no-fit", "the next container needs this card whole");
}

#[test]
fn slot_of_an_init_container_is_reused_by_the_next() {
    let mut node = Node::new(2, PolicyName::Binpack);
    let mut two = pod("a", &[&[("gpu", "1")], &[("gpu", "1"), ("gpumem", "100")]]);
    Arc::make_mut(&mut two).containers[0].kind = ContainerKind::Init;
    node.pods.push(two);
    let slots = node.propose(1).expect("fits");
    node.allocate(&slots).expect("fits");
    node.allocate(&slots).expect("one runs after the other");
    assert_eq!((node.held("a", "c0"), node.held("a", "c1")), (of("GPU-0", 1000), of("GPU-0", 100)));
}

#[test]
fn extender_plan_is_followed_if_it_fits_and_names_this_node() {
    let served = |name: &str, card: &str| {
        let mut node = Node::new(3, PolicyName::Binpack);
        node.hold("other", &slot("GPU-2::0"), 500);
        let chosen = vec![card.parse().expect("a UUID")];
        let containers = [("c0".to_owned(), PlannedCards { chosen, reused: vec![] })].into();
        let planned = annotation::encode(&Planned { node: name.to_owned(), containers, ..Planned::default() });
        node.pods.push(annotated(part("a", "600"), key::PLANNED, planned));
        node.serve(1).expect("fits").concat()
    };
    assert_eq!(served(NODE, "GPU-1"), "GPU-1");
    assert_eq!(served("other-node", "GPU-1"), "GPU-0", "as the policy has it");
    assert_eq!(served(NODE, "GPU-2"), "GPU-0", "600 don't fit beside 500");
    assert_eq!(served(NODE, "GPU-9"), "GPU-0", "no such card");
}

#[test]
fn unreadable_plan_is_ignored() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(annotated(part("a", "600"), key::PLANNED, "{"));
    assert_eq!(node.serve(1).expect("fits"), ["GPU-0"]);
}

#[test]
fn refused_pod_is_no_candidate() {
    let bad = |key: &str, value: &str| annotated(part("bad", "100"), key, value);
    let contradiction = pod("bad", &[&[("gpu", "1"), ("gpumem", "100"), ("gpumem-percentage", "10")]]);
    let refused = [
        (bad(key::TIER, "shim"), "tier"),
        (bad(key::OVERSUBSCRIBE, "true"), "oversubscribe"),
        (bad(key::CARD_POLICY, "tight"), "annotation"),
        (contradiction, "request"),
        (part("bad", "1001"), "no-fit"),
    ];
    for (pod, reason) in refused {
        let mut node = Node::new(1, PolicyName::Binpack);
        node.pods.push(pod);
        assert_eq!(kind(node.propose(1)), reason);
        assert_eq!(kind(node.propose(1)), "identity-nobody", "{reason}: the kubelet fails it for good");
        node.pods.push(part("good", "1000"));
        assert_eq!(node.serve(1).expect(reason), ["GPU-0"], "the other is still listed, and lacks as many devices");
        assert_eq!((node.held("bad", "c0"), node.held("good", "c0")), (vec![], of("GPU-0", 1000)));
    }
}

/// A node whose kubelet has lost its checkpoint: its pod's container, which waits for another start, holds 600 of GPU-1,
/// and anybody else would be given GPU-0.
fn forgetful() -> Node {
    let mut node = Node::new(2, PolicyName::Spread);
    node.hold("other", &slot("GPU-0::0"), 300);
    node.pods.push(part("a", "600"));
    assert_eq!(node.serve(1).expect("fits"), ["GPU-1"]);
    let failed = ContainerState::Waiting { started_before: true };
    Arc::make_mut(&mut node.pods[1]).states.insert("c0".to_owned(), failed);
    node.hold("late", &slot("GPU-1::3"), 400);
    node.lose_checkpoint();
    node
}

#[test]
fn forgotten_container_is_proposed_its_own_gpus() {
    let mut node = forgetful();
    let before = node.holding("a", "c0").expect("held").nonce;
    let slots = node.propose(1).expect("its own");
    assert_eq!(cards(&slots), ["GPU-1"]);
    assert_eq!(proposed_kind(node.allocator.allocate_proposed(&slots)), "ok");
    assert_eq!(node.held("a", "c0"), of("GPU-1", 600));
    assert_ne!(node.holding("a", "c0").expect("held").nonce, before, "a new holding has directories of its own");
    assert_eq!(node.allocator.take_ended(), [before]);
}

#[test]
fn forgotten_container_is_allocated_again_on_its_cards() {
    let mut node = forgetful();
    let slots = [slot("GPU-1::1")];
    assert_eq!(kind(node.allocate(&slots)), "identity-nobody", "it lacks nothing");
    let forgotten = node.allocator.suspects(&node.pods, &slots);
    assert!(forgotten.iter().all(|subject| node.allocator.is_forgotten(subject, &[])));
    assert_eq!(forgotten.iter().map(|subject| subject.pod.name.as_str()).collect::<Vec<_>>(), ["a"], "others run");
    node.allocator.allocate_again(&ResourceNames::default().count, &forgotten, &slots).expect("what it holds anyway");
    assert_eq!(node.held("a", "c0"), of("GPU-1", 600));
}

#[test]
fn forgotten_container_is_refused_a_card_that_is_too_full() {
    let mut node = forgetful();
    node.hold("third", &slot("GPU-0::1"), 200);
    let slots = [slot("GPU-0::2")];
    let forgotten = node.allocator.suspects(&node.pods, &slots);
    assert_eq!(kind(node.allocator.allocate_again(&ResourceNames::default().count, &forgotten, &slots)), "no-fit");
    assert_eq!(node.held("a", "c0"), of("GPU-1", 600), "what runs keeps its share");
}

#[test]
fn pre_start_writes_the_limits_of_the_slots_holder() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(part("a", "100"));
    let slots = node.propose(1).expect("fits");
    node.allocate(&slots).expect("fits");
    let written = node.written("a", "c0");
    let [(card, share)] = &written.shares[..] else { panic!("one card: {written:?}") };
    assert_eq!((card.as_str(), share.memory.as_mib()), ("GPU-0", 100));
    node.limits.lock().unwrap().clear(); // as by a reboot
    node.allocator.pre_start(&slots).expect("known");
    assert_eq!(node.written("a", "c0"), written);
}

#[test]
fn pre_start_refuses_unallocated_slots() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(part("a", "100"));
    assert_eq!(node.propose(1).expect("fits"), [slot("GPU-0::0")]);
    node.allocate(&[slot("GPU-0::0")]).expect("fits");
    for unknown in ["GPU-0::1", "GPU-9::0"] {
        let refusal = node.allocator.pre_start(&[slot(unknown)]).expect_err("nobody's");
        assert!(refusal.kind() == "unknown-holder" && refusal.to_string().contains(unknown), "{refusal}");
    }
}

#[test]
fn ended_share_is_released_once() {
    let mut node = Node::new(1, PolicyName::Binpack);
    for name in ["a", "b"] {
        node.pods.push(part(name, "100"));
        node.serve(1).expect("fits");
    }
    let nonce = node.holding("a", "c0").expect("held").nonce;
    node.look();
    assert_eq!(node.allocator.take_ended(), [], "nobody has ended");
    Arc::make_mut(&mut node.pods[0]).phase = Phase::Succeeded;
    node.look();
    node.look();
    assert_eq!(node.allocator.take_ended(), [nonce]);
    assert_eq!(node.allocator.take_ended(), []);
    assert_eq!((node.held("a", "c0"), node.held("b", "c0")), (vec![], of("GPU-0", 100)));
}

#[test]
fn unknown_directories_stay_until_the_first_reconcile() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(part("a", "100"));
    node.serve(1).expect("fits");
    let limits = Arc::clone(&node.limits);
    let exists = || !limits.lock().unwrap().is_empty();
    node.lose_journal();
    node.allocator.remove_stale_directories();
    assert!(exists(), "the container may run");
    node.allocator.compare_slots_with(Vec::new());
    node.allocator.remove_stale_directories();
    assert!(exists(), "the records are there, the pods aren't");
    node.pods.clear();
    node.look();
    node.allocator.remove_stale_directories();
    assert!(!exists());
}

#[test]
fn unwritable_journal_allocates_nothing() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(part("a", "100"));
    node.serve(1).expect("fits");
    let before = (node.allocator.ledger().allocations().clone(), node.allocator.ledger().revision());
    node.pods.push(part("b", "600"));
    let slots = node.propose(1).expect("fits");
    let good = node.allocator.ledger.break_writes();
    assert_eq!(kind(node.allocate(&slots)), "ledger");
    assert_eq!((node.allocator.ledger().allocations(), node.allocator.ledger().revision()), (&before.0, before.1));
    assert_eq!(node.allocator.take_ended().len(), 1, "its directories, which nobody will mount");
    node.allocator.ledger.mend_writes(good);
    node.pods.push(part("c", "900"));
    assert_eq!(node.serve(1).expect("b holds nothing"), ["GPU-0"]);
}

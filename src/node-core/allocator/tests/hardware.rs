//! Whole MIG instances: what is given, what is said of it, and what lasts.

use std::collections::HashMap;

use divvy_api::annotation::PolicyName;
use divvy_api::names::annotation as key;
use divvy_api::{Memory, SlotId, Tier};

use super::fixture::{Node, annotated, cards, part, pod, slot};
use super::{PodList, kind, of};
use crate::pod::DeviceRecord;

/// A pod with so many MiB of one card that the hardware must hold to its share.
fn strict(name: &str, mib: &str) -> std::sync::Arc<crate::pod::Pod> {
    annotated(part(name, mib), key::TIER, "mig")
}

/// A node of this tier with instances of 400, 100 and 200 MiB, and a GPU of 1000.
fn node(tier: Tier) -> Node {
    let mut node = Node::new(4, PolicyName::Spread);
    node.cut(&[400, 100, 200]);
    node.restart(tier);
    node
}

fn tier(node: &Node, pod: &str) -> Tier {
    node.written(pod, "c0").tier
}

#[test]
fn mig_pod_gets_the_smallest_sufficient_instance() {
    for served in [Tier::Accounting, Tier::Shim, Tier::Mig] {
        let mut node = node(served);
        node.pods.push(strict("a", "150"));
        assert_eq!(node.serve(1).expect("fits"), ["MIG-2"], "whatever the policy");
        assert_eq!((node.held("a", "c0"), tier(&node, "a")), (of("MIG-2", 200), Tier::Mig));
        let share = node.holding("a", "c0").expect("held").parts[0].share;
        assert!(share.exclusive && share.cores.units() == 100, "{share}");
        node.pods.push(part("b", "150"));
        node.serve(1).expect("fits elsewhere");
        assert_eq!(kind(node.allocate(&[slot("MIG-2::3")])), "identity-nobody");
        assert_ne!(node.held("b", "c0")[0].0, "MIG-2", "nobody else is given it");
    }
}

#[test]
fn whole_instances_are_enforced_by_hardware() {
    let mut node = node(Tier::Shim);
    node.pods.push(pod("whole", &[&[("gpu", "1"), ("gpumem", "400"), ("gpucores", "100")]]));
    node.allocate(&[slot("MIG-0::0")]).expect("fits");
    node.pods.push(part("part", "50"));
    node.allocate(&[slot("MIG-1::0")]).expect("fits");
    node.pods.push(pod("gpu", &[&[("gpu", "1")]]));
    node.allocate(&[slot("GPU-3::0")]).expect("fits");
    assert_eq!(["whole", "part", "gpu"].map(|pod| tier(&node, pod)), [Tier::Mig, Tier::Shim, Tier::Shim]);
}

#[test]
fn container_with_instance_and_gpu_has_the_weaker_tier() {
    let mut node = node(Tier::Shim);
    node.pods.push(pod("both", &[&[("gpu", "2")]]));
    node.allocate(&[slot("MIG-0::0"), slot("GPU-3::0")]).expect("fits");
    assert_eq!(tier(&node, "both"), Tier::Shim);
}

#[test]
fn request_without_free_instance_is_refused_with_a_reason() {
    let mut whole = Node::new(1, PolicyName::Binpack);
    whole.pods.push(strict("a", "100"));
    let refusal = whole.propose(1).expect_err("a GPU alone");
    assert_eq!(refusal.kind(), "tier");
    let why = "annotation divvy.dev/tier: mig requested, this node offers accounting and no MIG instances";
    assert_eq!(refusal.to_string(), why);

    let mut node = node(Tier::Shim);
    node.hold("other", &slot("MIG-0::0"), 10);
    node.pods.push(strict("b", "300"));
    let refusal = node.propose(1).expect_err("in use, or too small, or a GPU");
    assert_eq!(refusal.kind(), "no-fit");
    let why = "container \"c0\" requests 1 GPU with 300Mi memory and 0 cores each (whole MIG instances): Insufficient GPUs (2 \
               too small, largest 200Mi; 1 in use by other pods; 1 not a MIG instance)";
    assert_eq!(refusal.to_string(), why);
}

#[test]
fn slots_chosen_by_the_kubelet_must_be_of_free_instances() {
    let given = |slots: &[&str]| {
        let mut node = node(Tier::Shim);
        node.hold("other", &slot("MIG-0::0"), 10);
        node.pods.push(strict("a", "150"));
        let slots: Vec<SlotId> = slots.iter().map(|name| slot(name)).collect();
        kind(node.allocate(&slots))
    };
    assert_eq!(given(&["MIG-2::3"]), "ok");
    for slot in ["MIG-0::3", "MIG-1::3", "GPU-3::3"] {
        assert_eq!(given(&[slot]), "no-fit", "{slot}: shared, too small, a GPU");
    }
}

#[test]
fn tier_mig_allocates_whole_instances_only() {
    let mut node = node(Tier::Mig);
    node.pods.push(pod("two", &[&[("gpu", "1"), ("gpucores", "10")], &[("gpu", "1"), ("gpumem", "150")]]));
    assert_eq!(node.serve(1).expect("fits"), ["MIG-1"]);
    assert_eq!(node.serve(1).expect("fits"), ["MIG-2"]);
    assert_eq!((node.held("two", "c0"), node.held("two", "c1")), (of("MIG-1", 100), of("MIG-2", 200)));
    assert_eq!(node.written("two", "c1").tier, Tier::Mig);
    node.pods.push(annotated(part("strict", "1"), key::TIER, "mps"));
    node.serve(1).expect("it is stronger than that");
}

#[test]
fn allocated_tier_survives_a_change_of_the_nodes_tier() {
    let mut node = node(Tier::Mig);
    node.pods.push(part("a", "150"));
    node.serve(1).expect("fits");
    for served in [Tier::Shim, Tier::Accounting, Tier::Mig] {
        node.restart(served);
        assert_eq!((node.held("a", "c0"), tier(&node, "a")), (of("MIG-2", 200), Tier::Mig));
    }
}

#[test]
fn mig_node_enforces_no_parts_allocated_before() {
    let mut node = node(Tier::Shim);
    node.pods.push(part("a", "50"));
    let given = node.serve(1).expect("fits");
    assert_eq!(tier(&node, "a"), Tier::Shim);
    node.restart(Tier::Mig);
    assert_eq!(tier(&node, "a"), Tier::Accounting);
    node.pods.push(part("b", "1"));
    assert_ne!(node.serve(1).expect("fits"), given, "it isn't free");
    node.restart(Tier::Shim);
    assert_eq!(tier(&node, "a"), Tier::Shim, "it has the library still");
}

#[test]
fn instance_lost_by_the_journal_is_restored_whole() {
    for (served, wish) in [(Tier::Shim, true), (Tier::Mig, false)] {
        for later in [Tier::Shim, Tier::Mig] {
            let mut node = node(served);
            node.pods.push(if wish { strict("a", "150") } else { part("a", "150") });
            let slots = node.propose(1).expect("fits");
            node.allocate(&slots).expect("fits");
            node.lose_journal_and_serve(later);
            node.allocator.compare_slots_with(vec![DeviceRecord {
                namespace: "default".to_owned(),
                pod: "a".to_owned(),
                container: "c0".to_owned(),
                resource: "nvidia.com/gpu".to_owned(),
                devices: slots.iter().map(ToString::to_string).collect(),
            }]);
            node.look();
            assert_eq!(node.held("a", "c0"), of("MIG-2", 200), "{served}, then {later}");
            node.allocator.pre_start(&slots).expect("written");
            assert_eq!(tier(&node, "a"), Tier::Mig);
        }
    }
}

#[test]
fn instance_is_kept_when_the_kubelet_lost_its_checkpoint() {
    let mut node = node(Tier::Shim);
    node.pods.push(strict("a", "150"));
    node.serve(1).expect("fits");
    node.lose_checkpoint();
    node.pods.push(strict("b", "150"));
    let asked = node.allocator.begin_list();
    let list = PodList { pods: node.pods.clone(), connection: None };
    node.allocator.reconcile(&list, asked, true, &HashMap::new()).expect("written");
    assert_eq!(node.held("a", "c0"), of("MIG-2", 200));
    let slots = node.propose(1).expect("the next larger one");
    assert_eq!(cards(&slots), ["MIG-0"]);
}

#[test]
fn share_on_an_unknown_gpu_is_kept_until_the_gpu_is_seen() {
    let mut node = Node::new(2, PolicyName::Binpack);
    node.pods.push(part("a", "300"));
    let slots = node.propose(1).expect("fits");
    node.allocate(&slots).expect("fits");
    assert_eq!(cards(&slots), ["GPU-0"]);
    let written = node.written("a", "c0");
    node.lose_journal();
    node.hide(0);
    node.allocator.compare_slots_with(vec![DeviceRecord {
        namespace: "default".to_owned(),
        pod: "a".to_owned(),
        container: "c0".to_owned(),
        resource: "nvidia.com/gpu".to_owned(),
        devices: slots.iter().map(ToString::to_string).collect(),
    }]);
    node.look();
    let unknown = |node: &Node| node.holding("a", "c0").expect("kept").parts[0].share;
    assert!(unknown(&node).exclusive && unknown(&node).memory == Memory::mib(0));
    node.look();
    assert!(unknown(&node).exclusive, "for as long as it isn't seen");
    node.allocator.pre_start(&slots).expect("its limits are still there");
    node.allocator.renew_limits();
    assert_eq!(node.written("a", "c0"), written);
    node.show_cards();
    node.pods.push(part("b", "300"));
    assert_eq!(node.serve(1).expect("there is another"), ["GPU-1"], "nothing but the name is known of the first");
    node.look();
    assert_eq!(node.held("a", "c0"), [("GPU-0".to_owned(), 300)]);
    assert!(!unknown(&node).exclusive);
    node.pods.push(part("c", "700"));
    assert_eq!(node.serve(1).map_err(|refusal| refusal.to_string()).expect("it fits beside one of them").len(), 1);
    node.allocator.pre_start(&slots).expect("written");
    assert_eq!(node.written("a", "c0").shares, written.shares);
}

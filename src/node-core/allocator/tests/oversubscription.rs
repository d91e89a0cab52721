//! Pods whose memory isn't all on their GPU.

use super::fixture::{annotated, part, pod};
use super::*;
use crate::pod::DeviceRecord;

/// A pod that asks for oversubscription.
fn asking(name: &str, mib: &str) -> Arc<Pod> {
    annotated(part(name, mib), key::OVERSUBSCRIBE, "true")
}

/// MiB of a pod's first container: all, and what is in host memory.
fn split(node: &Node, name: &str) -> (u64, u64) {
    let share = node.holding(name, "c0").expect("held").parts[0].share;
    (share.memory.as_mib(), share.host.as_mib())
}

fn oversubscribing(cards: u32, scale: u32, host_mib: u64) -> Node {
    let mut node = Node::new(cards, PolicyName::Binpack);
    node.oversubscribe(scale, host_mib);
    node
}

fn refused(result: Result<impl std::fmt::Debug, Refusal>) -> String {
    result.expect_err("refused").to_string()
}

#[test]
fn oversubscribing_pods_share_a_gpu_up_to_the_host_memory() {
    let mut node = oversubscribing(1, 150, 600);
    for name in ["a", "b"] {
        node.pods.push(asking(name, "750"));
        assert_eq!(node.serve(1).expect("500 of the GPU, 250 of the host"), ["GPU-0"]);
    }
    assert_eq!((split(&node, "a"), node.written("a", "c0").shares[0].1.host.as_mib()), ((750, 250), 250));
    node.pods.push(part("ordinary", "1"));
    assert!(refused(node.propose(1)).ends_with("Insufficient GPUs (1 holding pods with oversubscribed memory)"));
    node.pods.retain(|pod| pod.name == "a");
    node.look();
    node.pods.push(asking("greedy", "1000"));
    node.restart(Tier::Shim);
    assert!(refused(node.propose(1)).ends_with("(1 short of memory, largest free 500Mi)"), "667 of the GPU");

    node.pods.retain(|pod| pod.name == "a");
    node.oversubscribe(900, 600);
    node.pods.push(asking("c", "450"));
    assert!(refused(node.propose(1)).ends_with("(1 short of host memory, 400Mi needed, 350Mi left)"));
    assert_eq!(split(&node, "a"), (750, 250), "a share stays what it was at Allocate");
}

/// Allocates 750 MiB of one GPU at a scale of 150 %, and restores that at another scale from the kubelet's records.
fn restored(are_limits_lost: bool) -> Node {
    let mut node = oversubscribing(1, 150, 600);
    node.pods.push(asking("a", "750"));
    let slots = node.propose(1).expect("fits");
    node.allocate(&slots).expect("fits");
    if are_limits_lost {
        node.limits.lock().unwrap().clear();
    }
    node.oversubscribe_from_now_on(300, 600);
    node.lose_journal_and_serve(Tier::Shim);
    let (namespace, devices) = ("default".to_owned(), slots.iter().map(ToString::to_string).collect());
    let (container, resource) = ("c0".to_owned(), "nvidia.com/gpu".to_owned());
    let record = DeviceRecord { namespace, pod: "a".to_owned(), container, resource, devices };
    node.allocator.compare_slots_with(vec![record]);
    node.look();
    node
}

#[test]
fn lost_share_is_restored_from_the_limits_file_or_the_scale() {
    assert_eq!(split(&restored(false), "a"), (750, 250), "as it was made");
    assert_eq!(split(&restored(true), "a"), (750, 500), "after a power loss nothing else is known");
}

#[test]
fn containers_of_one_pod_may_be_divided_by_different_scales() {
    for (host_mib, fits) in [(250, true), (249, false)] {
        let mut node = oversubscribing(1, 150, host_mib);
        let limits: &[(&str, &str)] = &[("gpu", "1"), ("gpumem", "300")];
        node.pods.push(annotated(pod("a", &[limits, limits]), key::OVERSUBSCRIBE, "true"));
        node.serve(1).expect("200 of the GPU, 100 of the host");
        node.oversubscribe(200, host_mib);
        match node.serve(1) {
            Ok(_) => assert!(fits && node.allocator.ledger().allocations().host_memory(|_| true).as_mib() == 250),
            Err(refusal) => {
                assert!(!fits && refusal.to_string().ends_with("250Mi needed, 249Mi left)"), "{refusal}");
            }
        }
    }
}

#[test]
fn running_container_allocated_again_keeps_its_host_memory() {
    // At 110 % it would need 682 of the GPU, of which others leave 500; at 300 % the host has less left than it would need.
    for scale in [110, 300] {
        let mut node = oversubscribing(1, 150, 500);
        for name in ["b", "a"] {
            node.pods.push(asking(name, "750"));
            node.serve(1).expect("500 of the GPU, 250 of the host");
            let failed = ContainerState::Waiting { started_before: true };
            let states = &mut Arc::make_mut(node.pods.last_mut().expect("one")).states;
            states.insert("c0".to_owned(), if name == "a" { failed } else { ContainerState::Running });
        }
        node.oversubscribe(scale, 500);
        node.lose_checkpoint();
        node.serve(1).expect("as before");
        assert_eq!((split(&node, "a"), node.written("a", "c0").shares[0].1.host.as_mib()), ((750, 250), 250));
    }
}

#[test]
fn node_without_oversubscription_refuses_pods_that_ask() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.restart(Tier::Shim);
    node.pods.push(asking("a", "100"));
    assert!(
        refused(node.propose(1))
            .starts_with("annotation divvy.dev/oversubscribe: refused, because this node doesn't oversubscribe memory")
    );
}

#[test]
fn host_memory_on_a_gpu_that_is_gone_stays_booked() {
    let mut node = oversubscribing(2, 150, 600);
    node.pods.push(asking("a", "900"));
    assert_eq!(node.serve(1).expect("300 of the host"), ["GPU-0"]);
    node.hide(0);
    node.pods.push(asking("b", "903"));
    assert!(refused(node.propose(1)).ends_with("(1 short of host memory, 301Mi needed, 300Mi left)"));
    node.pods.push(asking("c", "900"));
    assert_eq!(node.serve(1).expect("300 of the host"), ["GPU-1"]);
}

#[test]
fn slots_chosen_by_the_kubelet_stay_within_the_host_memory() {
    let mut node = oversubscribing(2, 150, 150);
    let limits: &[(&str, &str)] = &[("gpu", "1"), ("gpumem", "300")];
    let mut both = annotated(pod("a", &[limits, limits]), key::OVERSUBSCRIBE, "true");
    Arc::make_mut(&mut both).containers[0].kind = ContainerKind::Init;
    node.pods.push(both);
    node.allocate(&[slot("GPU-0::0")]).expect("100 of the host");
    assert!(
        refused(node.allocate(&[slot("GPU-1::0")])).contains("200Mi needed, 150Mi left on the node"),
        "what the init container had stays with the pod"
    );
    assert_eq!(node.allocator.ledger().allocations().host_memory(|_| true).as_mib(), 100);
}

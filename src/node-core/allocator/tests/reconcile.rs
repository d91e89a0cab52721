//! What lists tell of pods that come, are refused, and go.

use std::collections::HashMap;

use super::*;
use crate::pod::{CgroupState, ConnectionId, PodList};

/// A list of one kubelet process.
fn list(pods: &[Arc<Pod>]) -> PodList {
    PodList { pods: pods.to_vec(), connection: Some(ConnectionId(1)) }
}

#[test]
fn outdated_list_ends_no_share() {
    let mut node = Node::new(1, PolicyName::Binpack);
    let overtaken = (node.allocator.begin_list(), list(&[]));
    node.pods.push(part("refused", "2000"));
    node.look();
    assert_eq!(kind(node.propose(1)), "no-fit");
    let (asked, pods) = overtaken;
    node.allocator.reconcile(&pods, asked, true, &HashMap::new()).expect("nothing to do");
    node.pods.push(part("next", "500"));
    assert_eq!(node.serve(1).expect("the other one was refused"), ["GPU-0"]);
}

#[test]
fn refused_pod_does_not_block_other_candidates() {
    let mut node = Node::new(1, PolicyName::Binpack);
    // The first one's call failed before it was known whose it was.
    node.pods.extend([part("unknown", "100"), part("second", "100")]);
    assert_eq!(kind(node.propose(1)), "identity-ambiguous");
    node.pods.push(part("third", "100"));
    assert_eq!(node.serve(1).expect("the admission of the others is over"), ["GPU-0"]);
    assert_eq!(node.held("third", "c0"), of("GPU-0", 100));
}

#[test]
fn pod_that_outlives_its_list_entry_ends_with_its_cgroup() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(part("forced", "100"));
    node.serve(1).expect("fits");
    let mut look = |pods: &[Arc<Pod>], cgroups: &HashMap<String, CgroupState>| {
        let asked = node.allocator.begin_list();
        node.allocator.reconcile(&list(pods), asked, false, cgroups).expect("written");
        node.allocator.ledger().allocations().pods().count()
    };
    let (forced, another) = (part("forced", "100"), part("another", "100"));
    assert_eq!(look(std::slice::from_ref(&forced), &HashMap::new()), 1);
    let lingers = HashMap::from([(forced.uid.clone(), CgroupState::Exists)]);
    for _ in 0..3 {
        assert_eq!(look(std::slice::from_ref(&another), &lingers), 1, "its processes run");
    }
    assert_eq!(look(&[another], &HashMap::new()), 0, "listed once by this kubelet, and no more");
}

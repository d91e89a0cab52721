//! Pods of other systems beside Divvy's own.

use super::*;
use crate::pod::DeviceRecord;

const ANNOTATION: &str = "nano-gpu/container-c0";

/// A running pod of nano-gpu.
pub(crate) fn nano(name: &str, annotations: &[&str]) -> Arc<Pod> {
    let mut nano = pod(name, &[&[]]);
    let own = Arc::make_mut(&mut nano);
    own.annotations.extend(annotations.iter().map(|number| (ANNOTATION.to_owned(), (*number).to_owned())));
    own.containers[0].limits.insert("nano-gpu/gpu-percent".to_owned(), "30".to_owned());
    own.phase = Phase::Running;
    own.states = [("c0".to_owned(), ContainerState::Running)].into();
    nano
}

/// What the kubelet has on record for it.
pub(crate) fn nano_record(pod: &str) -> DeviceRecord {
    DeviceRecord {
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        container: "c0".to_owned(),
        resource: "nano-gpu/gpu-percent".to_owned(),
        devices: (0..30).map(|number| format!("nano-0-{number:02}")).collect(),
    }
}

fn what_is_held(node: &Node) -> Vec<ForeignHeld> {
    node.allocator.foreign_pods().into_iter().map(|pod| pod.held).collect()
}

#[test]
fn unclear_devices_hold_all_cards_until_they_are_named() {
    let mut node = Node::new(2, PolicyName::Binpack);
    node.hide(1);
    node.pods.push(nano("nano", &[]));
    node.allocator.compare_slots_with(vec![nano_record("nano")]);
    node.look();
    assert_eq!(node.held("nano", "c0"), of("GPU-0", 1000), "the node's only card so far");
    node.show_cards();
    node.look();
    assert_eq!(node.held("nano", "c0"), [of("GPU-0", 1000), of("GPU-1", 1000)].concat());
    assert_eq!(what_is_held(&node), [ForeignHeld::All]);
    node.pods.push(part("early", "100"));
    assert_eq!(kind(node.propose(1)), "no-fit");
    node.pods[0] = nano("nano", &["1"]);
    node.look();
    assert_eq!(node.held("nano", "c0"), of("GPU-1", 1000));
    assert!(node.holding("nano", "c0").expect("held").parts[0].share.exclusive);
    assert_eq!(what_is_held(&node), [ForeignHeld::Cards(vec![slot("GPU-1::0").card])]);
    node.pods.push(part("next", "100"));
    assert_eq!(node.serve(1).expect("the other card is free"), ["GPU-0"]);
    node.pods.push(pod("whole", &[&[("gpu", "1")]]));
    assert_eq!(kind(node.propose(1)), "no-fit");
    let ended = Arc::make_mut(&mut node.pods[0]);
    (ended.phase, ended.states) = (Phase::Succeeded, [("c0".to_owned(), ContainerState::Terminated)].into());
    node.pods.push(pod("another", &[&[("gpu", "1")]]));
    node.look();
    assert_eq!((node.held("nano", "c0"), what_is_held(&node)), (Vec::new(), Vec::new()));
    assert_eq!(node.serve(1).expect("its card is free"), ["GPU-1"]);
}

#[test]
fn foreign_holding_survives_restarts_of_the_daemon() {
    let mut node = Node::new(2, PolicyName::Binpack);
    node.pods.push(nano("nano", &["1"]));
    node.allocator.compare_slots_with(vec![nano_record("nano")]);
    node.look();
    let held = node.holding("nano", "c0").cloned();
    node.restart(Tier::Accounting);
    node.look();
    assert_eq!(node.holding("nano", "c0").cloned(), held, "the kubelet has lost its records");
    assert_eq!(what_is_held(&node), [ForeignHeld::Cards(vec![slot("GPU-1::0").card])]);
    node.restart(Tier::Accounting);
    node.allocator.compare_slots_with(vec![nano_record("nano")]);
    node.look();
    assert_eq!(node.holding("nano", "c0").cloned(), held);
    node.lose_journal();
    node.allocator.compare_slots_with(vec![nano_record("nano")]);
    node.look();
    assert_eq!(node.held("nano", "c0"), of("GPU-1", 1000));
}

#[test]
fn foreign_pod_leaves_running_pods_and_their_limits_alone() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.push(part("own", "300"));
    let slots = node.propose(1).expect("fits");
    node.allocate(&slots).expect("fits");
    node.pods.push(nano("nano", &[]));
    node.allocator.compare_slots_with(vec![nano_record("nano")]);
    node.look();
    assert_eq!((node.held("own", "c0"), node.held("nano", "c0")), (of("GPU-0", 300), of("GPU-0", 1000)));
    node.allocator.pre_start(&slots).expect("it starts once more");
    assert_eq!(node.limits.lock().unwrap().len(), 1, "the other system's container has none");
}

#[test]
fn foreign_resource_without_devices_holds_nothing() {
    let mut node = Node::new(1, PolicyName::Binpack);
    node.pods.extend([nano("static", &["0"]), part("own", "300")]);
    node.look();
    assert_eq!(what_is_held(&node), [ForeignHeld::Nothing]);
    assert_eq!(node.allocator.foreign_pods()[0].resource, "nano-gpu/gpu-percent");
    assert_eq!(node.serve(1).expect("it is free"), ["GPU-0"]);
}

#[test]
fn hami_pod_holds_what_its_scheduler_chose_alone() {
    let mut node = Node::new(2, PolicyName::Binpack);
    let mut hami = part("hami", "300");
    Arc::make_mut(&mut hami).phase = Phase::Running;
    let other = "GPU-64802636-abba-4985-bf52-71560a48ec7c";
    let record = DeviceRecord {
        resource: "nvidia.com/gpu".to_owned(),
        devices: vec![format!("{other}-3")],
        ..nano_record("hami")
    };
    node.pods.push(Arc::clone(&hami));
    node.allocator.compare_slots_with(vec![record]);
    node.look();
    assert_eq!(node.held("hami", "c0"), of(other, 0), "without annotations the ID is true; this card isn't known");
    node.pods[0] = annotated(hami, "hami.io/vgpu-devices-allocated", "GPU-1,NVIDIA-NVIDIA L4,300,30:;");
    node.look();
    assert_eq!(node.held("hami", "c0"), of("GPU-1", 1000));
    assert!(node.holding("hami", "c0").expect("held").parts[0].share.exclusive);
    node.pods.push(part("own", "300"));
    assert_eq!(node.serve(1).expect("the other card is free"), ["GPU-0"]);
}

#[test]
fn namesake_of_a_foreign_pod_holds_nothing() {
    let mut node = Node::new(1, PolicyName::Binpack);
    let mut namesake = part("nano", "300");
    Arc::make_mut(&mut namesake).uid = "uid-namesake".to_owned();
    node.pods.extend([nano("nano", &["0"]), namesake]);
    node.allocator.compare_slots_with(vec![nano_record("nano")]);
    node.look();
    assert_eq!((node.held("nano", "c0"), node.held("namesake", "c0")), (of("GPU-0", 1000), Vec::new()));
}

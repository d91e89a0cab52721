//! Why there is no plan, as users read it.

use divvy_api::annotation::{Numa, Preferences};
use divvy_api::card::ComputeMode;
use divvy_api::pod::ContainerKind::{App, Init};
use divvy_api::{ContainerRequest, GpuRequest, Health};

use super::build::{
    cards, change, container, held, held_with_host, no_wishes, node, oversubscribe, pod_request, twice,
};
use crate::{ContainerPlan, Held, NoPlan, NodeState, Plan, Policy, plan, verify};

fn refusal(
    state: &NodeState,
    containers: &[ContainerRequest],
    allocated: &[Vec<usize>],
    preferences: &Preferences,
) -> String {
    let request = pod_request(containers, allocated, preferences);
    plan(state, &request, &Policy::default()).expect_err("no plan").to_string()
}

#[test]
fn refusal_has_a_reason_per_card() {
    let mut cards = cards(8);
    cards[0].health = Health::unhealthy("fell off the bus");
    cards[1].model = "NVIDIA T400 4GB".into();
    cards[2].scales.memory = 20;
    let mut node = node(cards);
    node.held[3] = held(60 << 10, 10);
    node.held[4] = held(8 << 10, 80);
    node.held[5] = Held { exclusive: true, ..held(80 << 10, 100) };
    node.held[6].slots = 32;
    node.held[7] = held(70 << 10, 10);
    let wish = Preferences { models: vec!["A100".into()], ..Preferences::default() };
    assert_eq!(
        refusal(&node, &[container(App, 1, 40 << 10, 30)], &[], &wish),
        "container \"main\" requests 1 GPU with 40Gi memory and 30 cores each: Insufficient GPUs (1 unhealthy; 1 of a model \
         that the pod doesn't allow; 2 short of memory, largest free 20Gi; 1 too small, largest 16Gi; 1 short of cores, most \
         free 20; 1 held exclusively by another pod; 1 without free slots)"
    );
}

#[test]
fn gpu_for_one_process_takes_no_parts() {
    let mut state = node(cards(2));
    change(&mut state).cards[0].compute_mode = ComputeMode::ExclusiveProcess;
    state.held[1] = held(80 << 10, 100);
    let part = container(App, 1, 1 << 10, 0);
    assert_eq!(
        refusal(&state, std::slice::from_ref(&part), &[], no_wishes()),
        "container \"main\" requests 1 GPU with 1Gi memory and 0 cores each: Insufficient GPUs (1 held exclusively by another \
         pod; 1 in a compute mode that allows no parts)"
    );
    let whole = ContainerRequest { request: Some(GpuRequest::whole(1)), ..part };
    let containers = [whole];
    let found = plan(&state, &pod_request(&containers, &[], no_wishes()), &Policy::default()).expect("a whole GPU");
    assert_eq!(found.containers[0].chosen, [0]);
}

#[test]
fn too_few_or_shared_cards_are_refused() {
    let mut three = node(cards(3));
    three.held[1] = Held { pods: 2, ..held(1 << 10, 0) };
    let whole = ContainerRequest { request: Some(GpuRequest::whole(3)), ..container(App, 1, 1, 0) };
    assert_eq!(
        refusal(&three, &[whole], &[], no_wishes()),
        "container \"main\" requests 3 whole GPUs: Insufficient GPUs (1 in use by other pods; 2 suitable)"
    );
    assert_eq!(
        refusal(&node(vec![]), &[container(App, 1, 1024, 0)], &[], no_wishes()),
        "container \"main\" requests 1 GPU with 1Gi memory and 0 cores each: no GPUs"
    );
}

#[test]
fn exclusive_containers_of_one_pod_are_refused() {
    let whole =
        ContainerRequest { name: "second".into(), request: Some(GpuRequest::whole(1)), ..container(App, 1, 1, 0) };
    let pod = [container(App, 1, 1024, 0), ContainerRequest { name: "first".into(), ..whole.clone() }, whole];
    assert!(refusal(&node(cards(2)), &pod, &[], no_wishes()).ends_with("(2 needed by other containers of the pod)"));
}

#[test]
fn numa_nodes_too_small_are_refused() {
    let mut cards = cards(4);
    for (card, numa) in cards.iter_mut().zip([Some(0), Some(1), Some(1), None]) {
        card.numa = numa;
    }
    let strict = Preferences { numa: Some(Numa::Strict), ..Preferences::default() };
    assert!(
        refusal(&node(cards), &[container(App, 3, 1024, 0)], &[], &strict)
            .ends_with("(2 on another NUMA node; 2 suitable)")
    );
}

#[test]
fn full_card_the_kubelet_would_reuse_is_refused() {
    let mut node = node(cards(2));
    node.held[0] = held(60 << 10, 0);
    let pod = [container(Init, 1, 1024, 0), container(App, 1, 40 << 10, 0)];
    assert!(
        refusal(&node, &pod, &[vec![0]], no_wishes())
            .ends_with("(1 short of memory, largest free 20Gi; 1 reused from an init container)")
    );
}

#[test]
fn refusal_tells_oversubscribed_cards_from_others() {
    let mut state = twice(node(cards(3)), 100);
    state.held[0] = held(20 << 10, 0);
    state.held[1] = held_with_host(30 << 10, 30 << 10);
    state.held[2] = held_with_host(60 << 10, 60 << 10);
    let refused =
        |state: &NodeState, gib: u64, preferences| refusal(state, &[container(App, 1, gib << 10, 0)], &[], preferences);
    let request =
        |gib| format!("container \"main\" requests 1 GPU with {gib}Gi memory and 0 cores each: Insufficient GPUs");
    assert_eq!(
        refused(&state, 61, no_wishes()),
        format!("{} (1 short of memory, largest free 60Gi; 2 holding pods with oversubscribed memory)", request(61))
    );
    let asking = &oversubscribe();
    assert_eq!(
        refused(&state, 22, asking),
        format!(
            "{} (1 holding pods without oversubscribed memory; 2 short of host memory, 11Gi needed, 10Gi left)",
            request(22)
        )
    );
    assert_eq!(
        refused(&state, 81, asking),
        format!("{} (3 too small, largest 80Gi)", request(81)),
        "whatever the scale is"
    );
    assert_eq!(refused(&node(cards(1)), 1, asking), format!("{} (1 without memory to oversubscribe)", request(1)));
    let two =
        [container(App, 1, 12 << 10, 0), ContainerRequest { name: "second".into(), ..container(App, 1, 12 << 10, 0) }];
    assert!(
        refusal(&state, &two, &[], asking).ends_with("2 short of host memory, 12Gi needed, 10Gi left)"),
        "together they need more than is left"
    );
    assert!(
        refusal(&state, &[container(App, u32::MAX, 12 << 10, 0)], &[], asking)
            .ends_with("2 short of host memory, 25769803770Gi needed, 10Gi left)"),
        "any number that a tenant writes"
    );
}

#[test]
fn foreign_plan_is_refused_naming_the_card() {
    let node = node(cards(2));
    let pod = [container(App, 2, 1024, 0)];
    let refused = |containers: Vec<Vec<usize>>| {
        let containers = containers.into_iter().map(|chosen| ContainerPlan { chosen, ..ContainerPlan::default() });
        let plan = Plan { containers: containers.collect() };
        verify(&node, &pod_request(&pod, &[], no_wishes()), &plan).expect_err("a misfit").to_string()
    };
    assert_eq!(refused(vec![]), "planned for 0 containers, the pod has 1");
    assert_eq!(refused(vec![vec![0]]), "container \"main\": 1 GPUs planned, 2 to be chosen");
    assert_eq!(refused(vec![vec![0, 7]]), "container \"main\": GPU 7 planned, the node has 2");
    assert_eq!(refused(vec![vec![1, 1]]), "container \"main\": GPU-1 planned twice");
    let mut sick = node.clone();
    change(&mut sick).cards[0].health = Health::unhealthy("fell off the bus");
    let plan = Plan { containers: vec![ContainerPlan { chosen: vec![0, 1], ..ContainerPlan::default() }] };
    let error = verify(&sick, &pod_request(&pod, &[], no_wishes()), &plan).expect_err("a misfit");
    assert_eq!(error.to_string(), "GPU-0: unhealthy");
}

#[test]
fn search_gives_up_on_absurdly_many_containers() {
    let pod = vec![container(App, 1, 1, 0); 600];
    let request = pod_request(&pod, &[], no_wishes());
    let answer = plan(&node(cards(64)), &request, &Policy::default());
    assert_eq!(answer, Err(NoPlan::GaveUp { steps: 0 }));
}

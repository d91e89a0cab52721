use std::time::{Duration, Instant};

use divvy_api::{ContainerKind, ContainerRequest, GpuRequest, Memory, ResourceNames, Terms, Totals};

use super::*;
use crate::ledger::{Holding, Ledger, Nonce, Origin, Part};
use crate::pod::{ContainerState, Phase, PodList};

/// A pod whose app containers ask for these numbers of devices.
fn mk_pod(name: &str, devices: &[usize]) -> Arc<Pod> {
    let container = |(index, count): (usize, &usize)| ContainerSpec {
        name: format!("c{index}"),
        kind: ContainerKind::App,
        index,
        limits: [("nvidia.com/gpu".to_owned(), count.to_string())].into(),
    };
    Arc::new(Pod {
        uid: format!("uid-{name}"),
        namespace: "ns".into(),
        name: name.into(),
        annotations: [].into(),
        containers: devices.iter().enumerate().map(container).collect(),
        phase: Phase::Pending,
        states: [].into(),
    })
}

struct Fixture {
    ledger: Ledger,
    history: CallHistory,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(dir.path()).expect("an empty ledger");
        Self { ledger, history: CallHistory::default(), _dir: dir }
    }

    fn hold(&mut self, pod: &Pod, container: &str, slot: u32) {
        let request = |spec: &ContainerSpec| ContainerRequest {
            name: spec.name.clone(),
            kind: spec.kind,
            request: Some(GpuRequest::whole(1)),
            profile: None,
            counted: Totals::default(),
        };
        let requests: Vec<_> = pod.containers.iter().map(request).collect();
        let share = GpuRequest::whole(1).share_on(Memory::mib(1000));
        let part = Part { card: "GPU-a".parse().expect("uuid"), slot: Some(slot), lost: None, share };
        let holding =
            Holding { nonce: Nonce::random(), parts: vec![part], origin: Origin::Allocated, terms: Terms::default() };
        self.ledger.allocate(&pod.reference(), &requests, container, holding).expect("booked");
    }

    fn resolve(&self, pods: &[Arc<Pod>], wanted: usize) -> Result<(String, usize), Unresolved> {
        let found =
            resolve(pods, self.ledger.allocations(), &self.history, &question(&ResourceNames::default(), wanted))?;
        Ok((found.pod.name.clone(), found.container))
    }
}

/// The kubelet asks for so many cards.
fn question(names: &ResourceNames, count: usize) -> Question<'_> {
    Question { names, resource: &names.count, count }
}

fn nobody(wanted: usize) -> Unresolved {
    Unresolved::Nobody { wanted, resource: ResourceNames::default().count }
}

#[test]
fn only_pod_that_lacks_devices_is_under_admission() {
    let mut fixture = Fixture::new();
    let pods = [mk_pod("served", &[1]), mk_pod("plain", &[0]), mk_pod("new", &[0, 1, 1])];
    fixture.hold(&pods[0], "c0", 0);
    assert_eq!(fixture.resolve(&pods, 1), Ok(("new".into(), 1)), "its first container that asks for any");
    fixture.hold(&pods[2], "c1", 1);
    assert_eq!(fixture.resolve(&pods, 1), Ok(("new".into(), 2)), "then the next");
    fixture.hold(&pods[2], "c2", 2);
    assert_eq!(fixture.resolve(&pods, 1), Err(nobody(1)));
}

#[test]
fn number_of_devices_must_match() {
    let fixture = Fixture::new();
    assert_eq!(fixture.resolve(&[mk_pod("two", &[2])], 1), Err(nobody(1)));
    assert_eq!(fixture.resolve(&[mk_pod("two", &[2]), mk_pod("one", &[1])], 1), Ok(("one".into(), 0)));
}

#[test]
fn two_equal_candidates_are_ambiguous() {
    let fixture = Fixture::new();
    let error = fixture.resolve(&[mk_pod("a", &[1]), mk_pod("b", &[1])], 1).expect_err("ambiguous");
    assert_eq!(
        error.to_string(),
        "cannot tell which pod is being admitted: all of these wait for 1 nvidia.com/gpu: ns/a, ns/b; recreate the pod"
    );
}

#[test]
fn pods_that_cannot_be_under_admission_are_left_out() {
    let mut fixture = Fixture::new();
    let new = mk_pod("new", &[1]);
    let with = |phase, state: Option<ContainerState>| {
        let states = state.map(|state| ("c0".to_owned(), state)).into_iter().collect();
        Arc::new(Pod { phase, states, ..(*mk_pod("old", &[1])).clone() })
    };
    for old in [
        with(Phase::Failed, None),
        with(Phase::Succeeded, None),
        with(Phase::Running, None),
        with(Phase::Pending, Some(ContainerState::Running)),
        with(Phase::Pending, Some(ContainerState::Waiting { started_before: true })),
    ] {
        assert_eq!(fixture.resolve(&[Arc::clone(&old), Arc::clone(&new)], 1), Ok(("new".into(), 0)), "{old:?}");
    }
    let waiting = with(Phase::Pending, Some(ContainerState::Waiting { started_before: false }));
    assert!(
        fixture.resolve(&[Arc::clone(&waiting), Arc::clone(&new)], 1).is_err(),
        "not started yet: may be under admission"
    );
    fixture.history.refuse(&waiting.uid);
    assert_eq!(fixture.resolve(&[waiting, new], 1), Ok(("new".into(), 0)), "refused by us");
}

#[test]
fn skipped_pod_is_no_candidate_until_kubelet_restart() {
    let mut fixture = Fixture::new();
    let names = ResourceNames::default();
    let pods = [mk_pod("gone-elsewhere", &[2]), mk_pod("a", &[1])];
    let found = resolve(&pods, fixture.ledger.allocations(), &fixture.history, &question(&names, 1))
        .expect("a alone lacks one");
    fixture.history.identified(found, &pods, fixture.ledger.allocations(), &names);
    fixture.hold(&pods[1], "c0", 0);
    let pods = [&pods[..], &[mk_pod("b", &[2])]].concat();
    assert_eq!(fixture.resolve(&pods, 2), Ok(("b".into(), 0)));
    fixture.history.begin();
    assert!(matches!(fixture.resolve(&pods, 2), Err(Unresolved::Ambiguous { .. })));
}

#[test]
fn lost_checkpoint_makes_only_waiting_containers_suspects() {
    let mut fixture = Fixture::new();
    let names = ResourceNames::default();
    let mut pods = vec![mk_pod("crashing", &[1]), mk_pod("running", &[1])];
    for (pod, state, slot) in
        [(0, ContainerState::Waiting { started_before: true }, 0), (1, ContainerState::Running, 1)]
    {
        let pod = Arc::make_mut(&mut pods[pod]);
        pod.phase = Phase::Running;
        pod.states.insert("c0".into(), state);
        fixture.hold(pod, "c0", slot);
    }
    let asked = ["GPU-0::7".parse().expect("a slot")];
    let suspects = suspects(&pods, fixture.ledger.allocations(), &fixture.history, &asked);
    assert_eq!(
        suspects,
        [ContainerUnderAdmission { pod: &pods[0], container: 0 }],
        "running containers are left alone"
    );
    assert!(resolve_again(&[], &question(&names, 1)).is_err(), "the kubelet knows its devices");
    assert_eq!(resolve_again(&suspects, &question(&names, 1)), Ok(suspects[0]));
    fixture.history.served("uid-crashing", "c0");
    assert!(
        super::suspects(&pods, fixture.ledger.allocations(), &fixture.history, &asked).is_empty(),
        "asked once, not twice"
    );
}

/// An init container and two others, all asking for one device and none of them running.
fn waiting_pod(kinds: [ContainerKind; 3]) -> Arc<Pod> {
    let mut pod = mk_pod("waiting", &[1, 1, 1]);
    for (container, kind) in Arc::make_mut(&mut pod).containers.iter_mut().zip(kinds) {
        container.kind = kind;
    }
    pod
}

#[test]
fn container_on_an_unhealthy_gpu_is_a_candidate() {
    use ContainerKind::App;
    let mut fixture = Fixture::new();
    let pod = waiting_pod([App, App, App]);
    fixture.hold(&pod, "c0", 0);
    fixture.hold(&pod, "c1", 1);
    fixture.hold(&pod, "c2", 2);
    let pods = [pod];
    let resolved = |offers: [SlotState; 3]| {
        let offer = |slot: &SlotId| offers[slot.number as usize];
        let names = ResourceNames::default();
        let found = resolve_choice(&pods, fixture.ledger.allocations(), &fixture.history, &question(&names, 1), offer);
        found.map(|(subject, again)| (subject.container, again))
    };
    assert_eq!(
        resolved([SlotState::Free, SlotState::Free, SlotState::Free]),
        Ok((0, true)),
        "the first that the kubelet forgot"
    );
    assert_eq!(resolved([SlotState::Held, SlotState::Free, SlotState::Free]), Ok((1, true)));
    let doubt = resolved([SlotState::Hidden, SlotState::Free, SlotState::Free]);
    assert!(matches!(doubt, Err(Unresolved::Ambiguous { .. })), "{doubt:?}");
}

#[test]
fn after_one_container_was_asked_for_again_the_next_follow() {
    use ContainerKind::{App, Init};
    let mut fixture = Fixture::new();
    let pod = waiting_pod([Init, App, App]);
    fixture.hold(&pod, "c0", 0);
    fixture.hold(&pod, "c1", 0);
    fixture.hold(&pod, "c2", 1);
    fixture.history.served("uid-waiting", "c0");
    let (pods, names) = ([pod], ResourceNames::default());
    // Taken by the init container, which says nothing of the other that holds it.
    let offer = |slot: &SlotId| if slot.number == 0 { SlotState::Held } else { SlotState::Free };
    let found = resolve_choice(&pods, fixture.ledger.allocations(), &fixture.history, &question(&names, 1), offer);
    assert_eq!(found, Ok((ContainerUnderAdmission { pod: &pods[0], container: 1 }, true)));
}

#[test]
fn slot_reused_again_belongs_to_containers_after_the_lender() {
    use ContainerKind::{App, Init};
    let mut fixture = Fixture::new();
    let pod = waiting_pod([Init, Init, App]);
    for container in ["c0", "c1", "c2"] {
        fixture.hold(&pod, container, 0);
    }
    let pods = [pod];
    let asked = ["GPU-a::0".parse().expect("a slot")];
    fixture.history.served("uid-waiting", "c1");
    let found = suspects(&pods, fixture.ledger.allocations(), &fixture.history, &asked);
    assert_eq!(found, [ContainerUnderAdmission { pod: &pods[0], container: 2 }]);
}

#[test]
fn list_is_quiet_since_its_last_new_pod() {
    let mut history = CallHistory::default();
    let start = Instant::now();
    let mut look = |pods: &[Arc<Pod>], second: u64| {
        let quiet = history.quiet(pods, start + Duration::from_secs(second));
        history.follow(&PodList { pods: pods.to_vec(), connection: None }, &Allocations::default());
        quiet.as_secs()
    };
    let [a, b] = ["a", "b"].map(|name| mk_pod(name, &[1]));
    assert_eq!(look(&[], 0), 0, "nothing is known yet");
    assert_eq!(look(std::slice::from_ref(&a), 1), 0);
    assert_eq!(look(std::slice::from_ref(&a), 19), 18);
    assert_eq!(look(&[Arc::clone(&b), Arc::clone(&a)], 20), 0, "the kubelet still lists its pods one by one");
    assert_eq!(look(&[b], 50), 30, "a pod that ends is no news");
    assert_eq!(look(&[a], 51), 0, "nor is one that a new kubelet has not listed yet, until it does");
}

#[test]
fn reported_container_states_end_the_admission_unless_served() {
    let mut fixture = Fixture::new();
    let names = ResourceNames::default();
    let lacks = |fixture: &Fixture, pod: &Pod, count| {
        let question = Question { names: &names, resource: &names.count, count };
        may_lack(pod, fixture.ledger.allocations(), &fixture.history, &question)
    };
    let mut pod = mk_pod("new", &[1, 2]);
    assert_eq!((lacks(&fixture, &pod, 1), lacks(&fixture, &pod, 2)), (Some(0), None));
    let told = ContainerState::Waiting { started_before: false };
    Arc::make_mut(&mut pod).states.insert("c0".into(), told);
    assert_eq!(lacks(&fixture, &pod, 1), None, "the kubelet admitted it without asking us");
    fixture.hold(&pod, "c0", 0);
    assert_eq!(lacks(&fixture, &pod, 2), Some(1), "it is admitted once more, and was served in part");
    fixture.history.refuse(&pod.uid);
    assert_eq!(lacks(&fixture, &pod, 2), None);
}

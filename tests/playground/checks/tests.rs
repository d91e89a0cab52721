use divvy_api::ContainerKind::{App, Init};
use divvy_api::{Memory, MemoryAmount, Terms};
use divvy_node::container::Limits;

use super::*;

const CARD: &str = "GPU-a";
const OTHER: &str = "GPU-b";

fn request(gib: u64, cores: u32) -> GpuRequest {
    GpuRequest { cards: 1, memory: MemoryAmount::Absolute(Memory::mib(gib << 10)), cores: Cores::new(cores) }
}

fn node(pods: Vec<PodView>) -> NodeView {
    let card = |id: &str| CardView {
        id: id.parse().expect("a UUID"),
        model: "H100".to_owned(),
        memory: Memory::mib(80 << 10),
        numa: None,
        healthy: true,
    };
    NodeView { name: "node-0".to_owned(), cards: vec![card(CARD), card(OTHER)], pods, ..NodeView::default() }
}

fn pod(name: &str, containers: Vec<ContainerView>) -> PodView {
    PodView { uid: format!("uid-{name}"), name: format!("default/{name}"), sharing: Sharing::Part, containers }
}

/// A container that runs with one card, and everything about it agrees.
fn container(request: GpuRequest, card: &str, slot: u32) -> ContainerView {
    let share = request.share_on(Memory::mib(80 << 10));
    let limits = Limits {
        terms: Terms::default(),
        pod_uid: "uid".to_owned(),
        namespace: "default".to_owned(),
        pod: "p".to_owned(),
        container: "main".to_owned(),
        cards: vec![(card.parse().expect("a UUID"), share)],
    };
    let named = [("environment", [card.to_owned()].into()), ("mounts", [card.to_owned()].into())].into();
    ContainerView {
        name: "main".to_owned(),
        kind: App,
        request: Some(request),
        running: true,
        slots: [format!("{card}::{slot}")].into(),
        given: Some(Given { named, limits: Some(Ok(limits)) }),
    }
}

/// What one look finds broken.
fn broken(node: &NodeView) -> Vec<String> {
    let mut tally = Tally::default();
    tally.check(node);
    tally.broken.iter().map(ToString::to_string).collect()
}

/// What is found after `change` was made to a sound container.
fn broken_by(change: impl FnOnce(&mut ContainerView)) -> String {
    let mut container = container(request(8, 30), CARD, 0);
    change(&mut container);
    let found = broken(&node(vec![pod("p", vec![container])]));
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].replace("I2 broken on node-0: default/p container main: ", "")
}

fn limits(container: &mut ContainerView) -> &mut Limits {
    container.given.as_mut().and_then(|given| given.limits.as_mut()?.as_mut().ok()).expect("limits")
}

#[test]
fn a_sound_node_passes_every_check() {
    let pods = vec![
        pod("p", vec![container(request(40, 50), CARD, 0)]),
        pod("q", vec![container(request(40, 50), CARD, 1)]),
        pod("r", vec![container(GpuRequest::whole(1), OTHER, 0)]),
    ];
    let ids = [format!("{CARD}::0")];
    let node = NodeView { listed: Some(ids.clone().into()), once_listed: ids.into(), ..node(pods) };
    let mut tally = Tally::default();
    tally.check(&node);
    assert_eq!(tally.broken, []);
    assert_eq!(tally.checked, [(Invariant::I1, 2), (Invariant::I2, 3), (Invariant::I4, 1)].into());
}

#[test]
fn oversubscribed_memory_counts_by_its_part_on_the_card() {
    let sharing = Sharing::Oversubscribed(150);
    let pod = |name: &str, slot| {
        let request = request(60, 30);
        let mut container = container(request, CARD, slot);
        limits(&mut container).cards[0].1 = request.share_of(Memory::mib(80 << 10), sharing);
        PodView { sharing, ..pod(name, vec![container]) }
    };
    let sound = node(vec![pod("p", 0), pod("q", 1)]);
    assert_eq!(broken(&sound), [""; 0]);
    let ordinary = PodView { sharing: Sharing::Part, ..sound.pods[0].clone() };
    let found = broken(&node(vec![ordinary])).remove(0);
    assert!(
        found.ends_with("(20Gi of it host memory), 30 cores of card GPU-a, requested 60Gi memory, 30 cores"),
        "{found}"
    );
}

#[test]
fn memory_beyond_the_card_is_found() {
    let pods =
        vec![pod("p", vec![container(request(50, 10), CARD, 0)]), pod("q", vec![container(request(31, 10), CARD, 1)])];
    let expected = "I1 broken on node-0: card GPU-a: 81Gi of 80Gi memory held: default/p 50Gi memory, 10 cores; default/q 31Gi memory, 10 cores";
    assert_eq!(broken(&node(pods)), [expected]);
}

#[test]
fn cores_beyond_the_card_are_found() {
    let pods =
        vec![pod("p", vec![container(request(1, 60), CARD, 0)]), pod("q", vec![container(request(1, 41), CARD, 1)])];
    assert!(broken(&node(pods))[0].contains("101 of 100 cores held"));
}

#[test]
fn company_of_an_exclusive_share_is_found() {
    let whole = GpuRequest { cores: Cores::FULL, ..request(8, 100) };
    let pods = vec![pod("p", vec![container(whole, CARD, 0)]), pod("q", vec![container(request(1, 0), CARD, 1)])];
    assert!(broken(&node(pods))[0].contains("held exclusively and by others"));
}

#[test]
fn init_containers_count_by_the_peak() {
    let init = |gib| ContainerView { kind: Init, name: "init".into(), ..container(request(gib, 0), CARD, 0) };
    let with_init = |gib| node(vec![pod("p", vec![init(gib), container(request(40, 0), CARD, 0)])]);
    assert_eq!(broken(&with_init(80)), [] as [String; 0], "one after another");
    assert!(broken(&with_init(81))[0].contains("81Gi of 80Gi"));
}

#[test]
fn cards_that_differ_are_found_wherever_they_are_named() {
    let environment = |c: &mut ContainerView| {
        c.given.as_mut().expect("given").named.insert("environment", [OTHER.to_owned()].into());
    };
    assert_eq!(broken_by(environment), "cards differ: environment GPU-b, mounts GPU-a");
    let slots = broken_by(|c| c.slots = [format!("{OTHER}::0")].into());
    assert_eq!(slots, "cards differ: environment GPU-a, slots GPU-b");
    let file = broken_by(|c| limits(c).cards[0].0 = OTHER.parse().expect("a UUID"));
    assert_eq!(file, "cards differ: environment GPU-a, limits file GPU-b");
}

#[test]
fn wrong_amounts_and_missing_files_are_found() {
    let amounts = broken_by(|c| limits(c).cards[0].1.memory = Memory::mib(8193));
    assert_eq!(amounts, "limits file: 8193Mi memory, 30 cores of card GPU-a, requested 8Gi memory, 30 cores");
    let mount = broken_by(|c| c.given.as_mut().expect("given").limits = None);
    assert_eq!(mount, "no limits directory is mounted");
    let file = broken_by(|c| c.given.as_mut().expect("given").limits = Some(Err("x/limits: gone".into())));
    assert_eq!(file, "x/limits: gone");
    assert_eq!(broken_by(|c| c.given = Some(Given::default())), "was started without a card");
}

#[test]
fn too_few_cards_are_found_before_and_after_the_start() {
    let two = GpuRequest { cards: 2, ..request(8, 30) };
    assert!(
        broken_by(|c| c.request = Some(two)).contains("2 GPUs with 8Gi memory and 30 cores each requested, 1 distinct")
    );
    let before = broken_by(|c| (c.request, c.given, c.running) = (Some(two), None, false));
    assert!(before.ends_with("1 distinct: GPU-a"), "{before}");
    assert!(broken_by(|c| c.request = None).contains("without a request"));
}

#[test]
fn only_a_forgetful_kubelet_excuses_an_ended_container() {
    let mut ended = container(request(8, 30), CARD, 0);
    (ended.running, ended.slots) = (false, [format!("{OTHER}::3")].into());
    let node = node(vec![pod("p", vec![ended])]);
    assert_eq!(broken(&node).len(), 1);
    assert_eq!(broken(&NodeView { forgot: true, ..node }), [] as [String; 0]);
}

#[test]
fn only_a_forgetful_kubelet_may_overlook_a_request() {
    let mut overlooked = container(request(8, 30), CARD, 0);
    (overlooked.given, overlooked.slots) = (Some(Given::default()), BTreeSet::new());
    let node = node(vec![pod("p", vec![overlooked])]);
    assert_eq!(broken(&node).len(), 1);
    assert_eq!(broken(&NodeView { forgot: true, ..node }), [] as [String; 0]);
}

#[test]
fn a_vanished_id_is_found() {
    let listed = |listed: &[&str]| Some(listed.iter().map(|id| (*id).to_owned()).collect());
    let once_listed = listed(&["GPU-a::0", "GPU-a::1"]).unwrap_or_default();
    let node = NodeView { once_listed, listed: listed(&["GPU-a::0"]), ..node(vec![]) };
    assert_eq!(broken(&node), ["I4 broken on node-0: 1 IDs have vanished from the list, among them GPU-a::1"]);
    assert_eq!(broken(&NodeView { listed: None, ..node }), [] as [String; 0], "before the first list");
}

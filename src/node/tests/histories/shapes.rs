//! Pods as users, good and bad, write them.

use std::collections::BTreeMap;

use divvy_api::annotation::{self, Planned, PlannedCards};
use divvy_api::names::annotation as key;
use divvy_api::{CardId, ContainerKind, ContainerSpec, Memory};
use divvy_testkit::pods::GPU;
use proptest::prelude::*;

/// Name of the node in plans.
pub(crate) const NODE: &str = "node";
/// The resource that counts instances, of which the node has some beside its cards.
pub(crate) const INSTANCES: &str = "nvidia.com/mig-1g.10gb";
/// Host memory of a node that oversubscribes.
pub(crate) const HOST_MEMORY: Memory = Memory::mib(900);
/// Cards of the node.
pub(crate) const CARDS: u32 = 4;

/// A pod before it comes.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// In admission order.
    pub(crate) containers: Vec<ContainerSpec>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Contradicts itself, so it must never be given anything.
    pub(crate) bad: bool,
}

type Limits = Vec<(&'static str, String)>;

pub(crate) fn card(number: u32) -> CardId {
    format!("GPU-{number}").parse().unwrap()
}

pub(crate) fn instance(number: u32) -> CardId {
    format!("MIG-{number}").parse().unwrap()
}

fn good_limits() -> impl Strategy<Value = Limits> {
    let memory = || (1..=60u32).prop_map(|tens| (tens * 10).to_string());
    let percent = || (1..=60u32).prop_map(|percent| percent.to_string());
    let gpus = |most: u32| (1..=most).prop_map(|count| count.to_string());
    prop_oneof![
        3 => Just(vec![]),
        1 => gpus(2).prop_map(|n| vec![("gpu", n)]),
        1 => gpus(2).prop_map(|n| vec![("gpu", n), ("gpucores", "100".to_owned())]),
        4 => (gpus(3), memory()).prop_map(|(n, memory)| vec![("gpu", n), ("gpumem", memory)]),
        3 => (gpus(3), percent()).prop_map(|(n, cores)| vec![("gpu", n), ("gpucores", cores)]),
        3 => (gpus(2), percent(), percent())
            .prop_map(|(n, memory, cores)| vec![("gpu", n), ("gpumem-percentage", memory), ("gpucores", cores)]),
        // Nobody asks the kubelet for a device.
        1 => percent().prop_map(|cores| vec![("gpucores", cores)]),
    ]
}

fn bad_limits() -> impl Strategy<Value = Limits> {
    let pair = |name, text: &str| vec![("gpu", "1".to_owned()), (name, text.to_owned())];
    prop::sample::select(vec![
        [pair("gpumem", "10"), pair("gpumem-percentage", "10")].concat(),
        pair("gpumem", "0"),
        pair("gpumem", "1G"),
        pair("gpumem", "99999999999999999999"),
        pair("gpucores", "101"),
        pair("mig-1g.10gb", "1"),
        pair("gpumem-percentage", "-1"),
    ])
}

fn container(kind: ContainerKind) -> impl Strategy<Value = (ContainerKind, Limits, bool)> {
    let limits = prop_oneof![
        20 => good_limits().prop_map(|limits| (limits, false)),
        1 => bad_limits().prop_map(|limits| (limits, true)),
    ];
    (limits, prop::bool::weighted(0.2)).prop_map(move |((mut limits, bad), of_instances)| {
        for (name, _) in limits.iter_mut().filter(|(name, _)| of_instances && !bad && *name == "gpu") {
            *name = "mig-1g.10gb";
        }
        (kind, limits, bad)
    })
}

fn annotations() -> impl Strategy<Value = (BTreeMap<String, String>, bool)> {
    let one = |key: &str, value: String| [(key.to_owned(), value)].into();
    prop_oneof![
        8 => Just((BTreeMap::new(), false)),
        3 => planned().prop_map(move |planned| (one(key::PLANNED, planned), false)),
        8 => Just((one(key::OVERSUBSCRIBE, "true".to_owned()), false)),
        1 => planned().prop_map(move |planned| {
            let asks = (key::OVERSUBSCRIBE.to_owned(), "true".to_owned());
            ([asks, (key::PLANNED.to_owned(), planned)].into(), false)
        }),
        1 => prop::sample::select(vec!["binpack", "spread", "random", "least-fragmentation", "topology"])
            .prop_map(move |policy| (one(key::CARD_POLICY, policy.to_owned()), false)),
        1 => Just((one(key::NUMA, "strict".to_owned()), false)),
        1 => prop::sample::select(vec![
            (key::TIER, "mps"),
            (key::OVERSUBSCRIBE, "yes"),
            (key::CARD_POLICY, "tight"),
            (key::REQUEST, "{}"),
        ])
        .prop_map(move |(key, value)| (one(key, value.to_owned()), true)),
    ]
}

/// A plan that was made for who knows what: cards that are taken or unknown, containers that there aren't, text that
/// is no plan.
fn planned() -> impl Strategy<Value = String> {
    let cards = || prop::collection::vec((0..=CARDS).prop_map(card), 0..3);
    let container = (cards(), cards()).prop_map(|(chosen, reused)| PlannedCards { chosen, reused });
    let containers = prop::collection::btree_map("c[0-4]", container, 0..4);
    let node = prop::sample::select(vec![NODE, NODE, "other"]);
    prop_oneof![
        9 => (node, containers)
            .prop_map(|(node, containers)| annotation::encode(&Planned { node: node.to_owned(), containers, ..Planned::default() })),
        1 => Just("{".to_owned()),
    ]
}

pub(crate) fn shape() -> impl Strategy<Value = Shape> {
    let first = prop_oneof![3 => container(ContainerKind::Init), 1 => container(ContainerKind::Sidecar)];
    let init = prop_oneof![2 => Just(vec![]), 1 => prop::collection::vec(first, 1..3)];
    let apps = prop_oneof![2 => prop::collection::vec(container(ContainerKind::App), 1), 1 => prop::collection::vec(container(ContainerKind::App), 2..4)];
    (init, apps, annotations()).prop_map(|(init, apps, (annotations, bad))| {
        let all: Vec<_> = init.into_iter().chain(apps).collect();
        let bad = bad || all.iter().any(|(_, _, bad)| *bad);
        let containers = all.into_iter().enumerate().map(|(at, (kind, limits, _))| spec(at, kind, &limits)).collect();
        Shape { containers, annotations, bad }
    })
}

fn spec(index: usize, kind: ContainerKind, limits: &Limits) -> ContainerSpec {
    let name = |name: &str| GPU.replace("gpu", name);
    let limits = limits.iter().map(|(resource, text)| (name(resource), text.clone())).collect();
    ContainerSpec { name: format!("c{index}"), kind, index, limits }
}

//! Amounts of resources, as kube-scheduler adds them up (`NodeResourcesFit`).

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::ContainerKind;
use divvy_api::pod::{PodSum, peak};
use serde_json::Value;

use fake_apiserver::object::{items, text};
use fake_apiserver::quantity;

/// Billionths by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts(pub(crate) BTreeMap<String, i128>);

/// Billionths of one resource.
#[derive(Clone, Copy, Default)]
struct Nanos(i128);

/// The resource of which every pod uses one.
pub(crate) const PODS: &str = "pods";

/// One of anything.
const ONE: i128 = 1_000_000_000;

// === impl Amounts ===

impl Amounts {
    /// What a node has for pods.
    pub(crate) fn of_node(node: &Value) -> Self {
        Self::read(&node["status"]["allocatable"])
    }

    /// The most that a pod requests at once, but for resources that the scheduler is to ignore.
    pub(crate) fn of_pod(pod: &Value, ignored: &[String]) -> Self {
        let init = items(pod, "/spec/initContainers").iter().map(|container| {
            let sidecar = text(container, "/restartPolicy") == "Always";
            (if sidecar { ContainerKind::Sidecar } else { ContainerKind::Init }, container)
        });
        let apps = items(pod, "/spec/containers").iter().map(|container| (ContainerKind::App, container));
        let read = |(kind, container): (_, &Value)| (kind, Self::read(&container["resources"]["requests"]));
        let containers: Vec<(ContainerKind, Self)> = init.chain(apps).map(read).collect();
        let names: BTreeSet<&String> = containers.iter().flat_map(|(_, amounts)| amounts.0.keys()).collect();
        let most = |name: &String| peak(containers.iter().map(|(kind, own)| (*kind, Nanos(own.get(name))))).0;
        let counted = names.into_iter().filter(|name| !ignored.contains(name)).map(|name| (name.clone(), most(name)));
        let counted = counted.filter(|(_, amount)| *amount != 0).chain([(PODS.to_owned(), ONE)]);
        Self(counted.collect())
    }

    fn read(amounts: &Value) -> Self {
        let amounts = amounts.as_object().into_iter().flatten();
        let read = |(name, value): (&String, &Value)| Some((name.clone(), quantity::parse(value.as_str()?)?));
        Self(amounts.filter_map(read).collect())
    }

    pub(crate) fn get(&self, resource: &str) -> i128 {
        self.0.get(resource).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (resource, amount) in &other.0 {
            *self.0.entry(resource.clone()).or_default() += amount;
        }
    }

    /// Takes away what was added before.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (resource, amount) in &other.0 {
            *self.0.entry(resource.clone()).or_default() -= amount;
        }
    }
}

// === impl Nanos ===

impl PodSum for Nanos {
    fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

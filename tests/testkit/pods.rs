//! Pods as a user, and as the webhook, would write them.

use std::collections::BTreeMap;

use divvy_api::annotation::{self, Document as _, RequestAnnotation};
use divvy_api::limits::{RequestError, pod_requests};
use divvy_api::pod::{PodSum, peak};
use divvy_api::request::Defaults;
use divvy_api::{ContainerKind, ContainerRequest, ContainerSpec, GpuRequest, Memory, ResourceName, ResourceNames};
use k8s_openapi::api::core::v1;

use fake_kubelet::Workload;

/// The resource that the kubelet counts.
pub const GPU: &str = "nvidia.com/gpu";
/// Where all pods live.
pub const NAMESPACE: &str = "default";

/// A pod before it is submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodShape {
    /// Name of the pod.
    pub name: String,
    /// In admission order: init containers, then app containers.
    pub containers: Vec<ContainerSpec>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// Name and value of a kernel parameter that it sets.
    pub sysctl: Option<(String, String)>,
    /// How its user wrote it, if that was for another system: limits by container, and annotations beside its own.
    pub foreign: Option<Foreign>,
    /// What is to become of it.
    pub fate: Fate,
}

/// A pod in the words of another system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Limits of its containers, in order.
    pub limits: Vec<BTreeMap<String, String>>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
}

/// What a pod was written for. All but the first are never brought into the form that the webhook would give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// To run on a node, sooner or later.
    Runs,
    /// To be refused: it contradicts itself.
    Refused,
    /// To wait for ever: no node is large enough. One that is put on a node is refused there.
    Waits,
}

/// Parts of cards that run side by side or one after another.
#[derive(Clone, Copy, Default)]
struct Demand(f64);

// === impl PodShape ===

impl PodShape {
    /// A pod without containers.
    pub fn new(name: impl Into<String>) -> Self {
        let (containers, annotations) = (Vec::new(), BTreeMap::new());
        Self { name: name.into(), containers, annotations, sysctl: None, foreign: None, fate: Fate::Runs }
    }

    /// Adds a container; init containers come before app containers.
    #[must_use]
    pub fn with(mut self, kind: ContainerKind, name: &str, limits: &[(&str, &str)]) -> Self {
        let index = self.containers.iter().filter(|other| other.kind.list_field() == kind.list_field()).count();
        let limits = limits.iter().map(|(name, amount)| (resource(name), (*amount).to_owned())).collect();
        self.containers.push(ContainerSpec { name: name.to_owned(), kind, index, limits });
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotated(mut self, key: &str, value: impl Into<String>) -> Self {
        self.annotations.insert(key.to_owned(), value.into());
        self
    }

    /// Writes the pod as a user of another system does: the only container's limits, and annotations.
    #[must_use]
    pub fn written(mut self, limits: &[(&str, &str)], annotations: &[(&str, &str)]) -> Self {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
        };
        self.foreign = Some(Foreign { limits: vec![owned(limits)], annotations: owned(annotations) });
        self
    }

    /// Writes the pod in our own words, whatever its user's were: for clusters in which nobody translates.
    #[must_use]
    pub fn translated(mut self) -> Self {
        self.foreign = None;
        self
    }

    /// Sets a kernel parameter; kubelets allow few.
    #[must_use]
    pub fn with_sysctl(mut self, name: &str, value: &str) -> Self {
        self.sysctl = Some((name.to_owned(), value.to_owned()));
        self
    }

    /// What its containers request, as the webhook would read it.
    pub fn requests(&self) -> Result<Vec<ContainerRequest>, RequestError> {
        pod_requests(&ResourceNames::default(), Defaults::default(), None, &self.containers)
    }

    /// How many cards' worth it holds at its peak, on cards with `memory`.
    pub fn demand(&self, memory: Memory) -> f64 {
        if self.fate != Fate::Runs {
            return 0.0;
        }
        let requests = self.requests().unwrap_or_default();
        peak(requests.iter().map(|container| (container.kind, Demand::of(container.request, memory)))).0
    }

    /// Writes limits and annotation as the webhook would: totals over a container's cards, and the requests beside them.
    /// Whole cards get no extra resource.
    pub fn normalise(&mut self, requests: &[ContainerRequest]) {
        let by_name = requests.iter().filter_map(|container| Some((container.name.clone(), container.request?)));
        let request = RequestAnnotation { containers: by_name.collect() };
        for container in &mut self.containers {
            let requested = requests.iter().find(|requested| requested.name == container.name);
            if let Some((requested, request)) = requested.and_then(|requested| Some((requested, requested.request?))) {
                let counting = ResourceNames::default().counting(requested.profile.as_ref());
                container.limits = totals(&counting, request);
            }
        }
        self.annotations.insert(RequestAnnotation::KEY.to_owned(), annotation::encode(&request));
    }

    /// The object as a user would create it.
    pub fn unbound(&self) -> v1::Pod {
        let mut written = self.clone();
        if let Some(Foreign { limits, annotations }) = written.foreign.take() {
            written.annotations.extend(annotations);
            written.containers.iter_mut().zip(limits).for_each(|(container, limits)| container.limits = limits);
        }
        let mut object = written.object();
        if let Some(spec) = &mut object.spec {
            spec.node_name = None;
        }
        object
    }

    /// The object that the API server would have, with a UID of its own.
    pub fn object(&self) -> v1::Pod {
        let mut workload = Workload::new(&self.name).namespace(NAMESPACE);
        for (key, value) in &self.annotations {
            workload = workload.annotation(key, value);
        }
        if let Some((name, value)) = &self.sysctl {
            workload = workload.sysctl(name, value);
        }
        for container in &self.containers {
            let limits: Vec<_> = container.limits.iter().map(|(name, amount)| (&**name, &**amount)).collect();
            workload = match container.kind {
                ContainerKind::Init => workload.init(&container.name, &limits),
                ContainerKind::Sidecar => workload.sidecar(&container.name, &limits),
                ContainerKind::App => workload.app(&container.name, &limits),
            };
        }
        workload.pod()
    }
}

/// `gpu` is `nvidia.com/gpu`.
fn resource(short: &str) -> String {
    format!("nvidia.com/{short}")
}

/// `counting` counts the cards.
fn totals(counting: &ResourceName, request: GpuRequest) -> BTreeMap<String, String> {
    let totals = request.totals();
    let whole = request == GpuRequest::whole(request.cards);
    let amounts = [("gpumem", totals.memory), ("gpumem-percentage", totals.percent), ("gpucores", totals.cores)];
    let amounts = amounts.into_iter().filter(|(_, amount)| *amount > 0 && !whole);
    let amounts = amounts.map(|(name, amount)| (resource(name), amount.to_string()));
    [(counting.as_str().to_owned(), totals.count.to_string())].into_iter().chain(amounts).collect()
}

// === impl Demand ===

impl Demand {
    fn of(request: Option<GpuRequest>, memory: Memory) -> Self {
        let Some(request) = request else { return Self::default() };
        let cores = f64::from(request.cores.units()) / 100.0;
        let part = |mib: u64| f64::from(u32::try_from(mib).unwrap_or(u32::MAX));
        let memory = part(request.memory.on_card(memory).as_mib()) / part(memory.as_mib());
        Self(f64::from(request.cards) * cores.max(memory))
    }
}

impl PodSum for Demand {
    fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

#[cfg(test)]
mod tests {
    use divvy_api::ContainerKind::{App, Init, Sidecar};

    use super::*;

    #[test]
    fn a_normalised_pod_reads_as_it_did_before() {
        let mut shape = PodShape::new("train")
            .with(Init, "fetch", &[("gpu", "1")])
            .with(App, "main", &[("gpu", "2"), ("gpumem", "8Gi"), ("gpucores", "30")])
            .with(App, "log", &[]);
        let requests = shape.requests().expect("valid");
        shape.normalise(&requests);
        let limits = |at: usize| shape.containers[at].limits.clone().into_iter().collect::<Vec<_>>();
        let pair = |name: &str, amount: &str| (resource(name), amount.to_owned());
        assert_eq!(limits(0), [pair("gpu", "1")]);
        assert_eq!(limits(1), [pair("gpu", "2"), pair("gpucores", "60"), pair("gpumem", "16384")]);
        let request: RequestAnnotation =
            annotation::decode(&shape.annotations[RequestAnnotation::KEY]).expect("our own");
        let again = pod_requests(&ResourceNames::default(), Defaults::default(), Some(&request), &shape.containers);
        // What is counted has changed: totals stand where amounts of each card stood.
        let requested =
            |requests: Vec<ContainerRequest>| requests.into_iter().map(|request| request.request).collect::<Vec<_>>();
        assert_eq!(again.map(requested), Ok(requested(requests)));
    }

    #[test]
    fn objects_keep_the_order_of_admission() {
        let shape = PodShape::new("p").with(Init, "a", &[]).with(Sidecar, "b", &[]).with(App, "c", &[("gpu", "1")]);
        let spec = shape.object().spec.expect("a spec");
        let init: Vec<_> =
            spec.init_containers.iter().flatten().map(|c| (&*c.name, c.restart_policy.as_deref())).collect();
        assert_eq!(init, [("a", None), ("b", Some("Always"))]);
        assert_eq!(spec.containers[0].resources.as_ref().and_then(|r| r.limits.as_ref()).map(BTreeMap::len), Some(1));
    }

    #[test]
    fn demand_is_the_peak_in_cards() {
        let shape = PodShape::new("p")
            .with(Init, "a", &[("gpu", "1")])
            .with(App, "b", &[("gpu", "2"), ("gpumem-percentage", "25"), ("gpucores", "10")])
            .with(App, "c", &[("gpu", "1"), ("gpumem", "10Gi")]);
        assert!((shape.demand(Memory::mib(40 * 1024)) - 1.0).abs() < 1e-9);
        assert!((shape.demand(Memory::mib(10 * 1024)) - 1.5).abs() < 1e-9);
    }
}

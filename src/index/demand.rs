//! Request of a pod, read as the node reads it.

use std::borrow::Cow;
use std::fmt::{self, Debug, Write};
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use divvy_api::annotation::{self, AnnotationError, PolicyName, Preferences, RequestAnnotation};
use divvy_api::config::{ClusterConfig, ClusterConfigError, Scheduling, Switch};
use divvy_api::limits::{RequestError, pod_requests};
use divvy_api::names::GATE;
use divvy_api::names::annotation::REQUEST;
use divvy_api::pod::ContainerKind;
use divvy_api::pod::wire::Resources;
use divvy_api::request::{Defaults, MemoryAmount};
use divvy_api::{ContainerRequest, GpuRequest, MigProfile, ResourceNames};
use divvy_placement::{Kind, PodRequest, Policy};

use crate::pod::{PodView, SchedulingTerms};
use crate::pod_group::PodGroup;

/// Configuration by which pods are read and compared. That of the nodes must be the same.
#[derive(Clone, Debug)]
pub struct SchedulingConfig {
    /// Names of the four resources.
    pub names: ResourceNames,
    /// Amounts for those that a pod leaves out.
    pub defaults: Defaults,
    /// Slots that nodes register for each card.
    pub slots_per_card: u32,
    /// Order of a node's plans where the pod doesn't say.
    pub card_policy: PolicyName,
    /// Order of nodes where the pod doesn't say.
    pub node_policy: PolicyName,
    /// Cards that are busier than reserved come after others.
    pub load_aware: bool,
    /// Pods for which nodes are chosen here before their scheduler sees them.
    pub planned: PlannedPods,
    /// Pods of lower priority are evicted for those that are planned here.
    pub preempts: bool,
    /// Longest time for which GPUs are reserved for a pod that its scheduler has been told of.
    pub nomination_timeout: Duration,
}

/// For which pods the leader chooses nodes, which their scheduler finds nominated; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedPods {
    /// Schedulers of such pods; usually one, or none.
    pub schedulers: Vec<String>,
    /// Only pods of groups: the scheduler asks the extender for the others.
    pub groups_alone: bool,
}

/// A pod's requests and wishes.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// The pod.
    pub uid: Arc<str>,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Priority by which it may preempt others.
    pub priority: i32,
    /// Requests in admission order, one a container.
    pub containers: Vec<ContainerRequest>,
    /// Annotations beside the amounts.
    pub preferences: Preferences,
    /// What it requests of a Node.
    pub requests: Resources,
    /// Group of pods that it is scheduled with.
    pub group: Option<Arc<PodGroup>>,
    /// What else decides by whom, when and where it is scheduled.
    pub scheduling: Arc<SchedulingTerms>,
}

/// A model of which a pod may have no GPUs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Product name.
    pub model: Arc<str>,
    /// Which quota, and by what, in the words of `ResourceQuota`.
    pub reason: Arc<str>,
}

/// A pod that no node would serve, because it contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDemand {
    /// In the limits.
    #[error(transparent)]
    GpuRequest(#[from] RequestError),
    /// In the annotations.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// In the node selector, node affinity and tolerations.
    #[error(
        "its node selector, required node affinity and tolerations have more than 1024 entries or 64 KiB: no node is planned for it"
    )]
    Selection,
}

/// The part of a demand that decides which nodes fit. Pods of one shape have the same scores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    requests: Vec<(ContainerKind, Option<MigProfile>, Option<GpuRequest>)>,
    preferences: Preferences,
}

/// All by which pods that wait may differ: where one of a class finds no place, none does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    shape: Shape,
    namespace: String,
    priority: i32,
    /// Hash of requests, node selection and all else.
    terms: u64,
}

/// The policies by which a pod's cards and its node are chosen.
#[derive(Clone, Copy, Debug)]
pub struct Policies {
    /// Among plans of one node.
    pub cards: Policy,
    /// Among nodes.
    pub nodes: Policy,
}

// === impl SchedulingConfig ===

/// The keys' own defaults; nothing is planned.
impl Default for SchedulingConfig {
    fn default() -> Self {
        let config = Self::try_from(&ClusterConfig::default()).expect("the default resources have four names");
        Self { planned: PlannedPods::default(), ..config }
    }
}

impl TryFrom<&ClusterConfig> for SchedulingConfig {
    type Error = ClusterConfigError;

    fn try_from(config: &ClusterConfig) -> Result<Self, ClusterConfigError> {
        config.check()?;
        Ok(Self {
            names: config.resource_names()?,
            defaults: config.request_defaults(),
            slots_per_card: config.slots_per_card.get(),
            card_policy: config.card_policy,
            node_policy: config.node_policy.unwrap_or(config.card_policy),
            load_aware: config.load_aware == Switch::On,
            planned: PlannedPods {
                schedulers: if config.scheduling == Scheduling::Node {
                    Vec::new()
                } else {
                    config.schedulers.0.clone()
                },
                groups_alone: config.scheduling == Scheduling::Extender,
            },
            preempts: false,
            nomination_timeout: Duration::from_secs(config.nomination_timeout_seconds.get().into()),
        })
    }
}

// === impl PlannedPods ===

impl PlannedPods {
    /// Whether a pod of this scheduler is one of them, with a group or without.
    pub fn include(&self, scheduler: &str, has_group: bool) -> bool {
        (has_group || !self.groups_alone) && self.schedulers.iter().any(|planned| planned == scheduler)
    }
}

// === impl Demand ===

impl Demand {
    /// Reads the demand of a pod; `None` if it asks for no GPUs.
    pub fn read(pod: &PodView, config: &SchedulingConfig) -> Result<Option<Self>, BadDemand> {
        let request =
            pod.annotations.get(REQUEST).map(|text| annotation::decode::<RequestAnnotation>(text)).transpose()?;
        let containers = pod_requests(&config.names, config.defaults, request.as_ref(), &pod.containers)?;
        if containers.iter().all(|container| container.request.is_none()) {
            return Ok(None);
        }
        if pod.scheduling.selection.is_too_large() {
            return Err(BadDemand::Selection);
        }
        let preferences = Preferences::from_annotations(&pod.annotations)?;
        let uid = pod.uid.as_str().into();
        let namespace = pod.namespace.clone();
        let name = pod.name.clone();
        Ok(Some(Self {
            uid,
            namespace,
            name,
            priority: pod.priority,
            containers,
            preferences,
            requests: pod.requests.clone(),
            group: pod.group.clone(),
            scheduling: Arc::clone(&pod.scheduling),
        }))
    }

    /// Demand of a pod that asks for no GPUs: it takes CPU that GPU pods may need.
    pub fn without_cards(pod: &PodView) -> Self {
        Self {
            uid: pod.uid.as_str().into(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            priority: pod.priority,
            containers: Vec::new(),
            preferences: Preferences::default(),
            requests: pod.requests.clone(),
            group: pod.group.clone(),
            scheduling: Arc::clone(&pod.scheduling),
        }
    }

    /// The demand without GPUs of these models.
    pub fn avoiding(&self, exceeded: &[Exceeded]) -> Cow<'_, Self> {
        if exceeded.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut allowed = self.clone();
        allowed.preferences.avoid_models.extend(exceeded.iter().map(Exceeded::pattern));
        Cow::Owned(allowed)
    }

    /// The demand of the same pod without our gate.
    pub(crate) fn without_our_gate(&self) -> Self {
        let mut ungated = self.clone();
        Arc::make_mut(&mut ungated.scheduling).gates.retain(|gate| gate != GATE);
        ungated
    }

    /// Request for placement; nothing is allocated before a pod is admitted.
    pub fn request(&self) -> PodRequest<'_> {
        PodRequest { containers: &self.containers, allocated: &[], shares: &[], preferences: &self.preferences }
    }

    /// Containers with a request.
    pub fn claiming(&self) -> usize {
        self.containers.iter().filter(|container| container.request.is_some()).count()
    }

    /// Cards, and the most compute and memory of one, for the order in which pods are placed together.
    pub(crate) fn size(&self) -> (u32, u32, u64) {
        let requests = || self.containers.iter().filter_map(|container| container.request);
        let memory = |request: GpuRequest| match request.memory {
            MemoryAmount::Absolute(memory) => memory.as_mib(),
            MemoryAmount::Percent(_) => 0, // its cores are as telling
        };
        let cores = requests().map(|request| request.cores.units()).max().unwrap_or_default();
        (requests().map(|request| request.cards).sum(), cores, requests().map(memory).max().unwrap_or_default())
    }

    /// Kinds of the pod's requests, one a request. The first of them requests the CPU of all.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = Kind> {
        let requests = self.containers.iter().filter_map(|container| Some((container, container.request?)));
        requests.enumerate().map(|(number, (container, request))| Kind {
            request,
            profile: container.profile.clone(),
            instances: self.preferences.wants_instances(),
            models: self.preferences.models.clone(),
            avoid_models: self.preferences.avoid_models.clone(),
            cpu_milli: if number == 0 { self.requests.cpu_milli } else { 0 },
        })
    }

    /// Whether it wants more of a node than cards: a tier, or memory beyond the cards'.
    pub(crate) fn asks_of_nodes(&self) -> bool {
        self.preferences.tier.is_some() || self.preferences.oversubscribe
    }

    /// Shape, by which scores are cached.
    pub fn shape(&self) -> Shape {
        let facts =
            |ContainerRequest { kind, profile, request, .. }: &ContainerRequest| (*kind, profile.clone(), *request);
        Shape { requests: self.containers.iter().map(facts).collect(), preferences: self.preferences.clone() }
    }

    /// Class, by which pods wait in one line.
    pub fn class(&self) -> Class {
        let Self { namespace, priority, requests, scheduling, .. } = self;
        // Nobody is evicted for a pod whose scheduler has seen it.
        let terms = (requests, &scheduling.selection, scheduling.never_preempts, scheduling.has_our_gate());
        Class { shape: self.shape(), namespace: namespace.clone(), priority: *priority, terms: hash(&terms) }
    }

    /// Policies of the pod's annotations, else those that are configured; for whole MIG instances the tightest, as no other
    /// pod gets what is left of them.
    pub fn policies(&self, configured: &SchedulingConfig) -> Policies {
        let SchedulingConfig { card_policy, node_policy, .. } = configured;
        let (by_card, by_node) = if self.preferences.wants_instances() {
            (PolicyName::LeastFragmentation, PolicyName::LeastFragmentation)
        } else {
            (self.preferences.card_policy.unwrap_or(*card_policy), *node_policy)
        };
        let mixed = |seed: u64, byte| (seed.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let seed = self.uid.bytes().fold(0, mixed);
        let named = |name| Policy { name, seed };
        Policies { cards: named(by_card), nodes: named(self.preferences.node_policy.unwrap_or(by_node)) }
    }
}

/// Hash of what is printed: not all of these types can be hashed.
fn hash(value: &impl Debug) -> u64 {
    struct Hashed(DefaultHasher);

    impl Write for Hashed {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }

    let mut hashed = Hashed(DefaultHasher::new());
    // Neither the hasher nor derived implementations fail.
    _ = write!(hashed, "{value:?}");
    hashed.0.finish()
}

// === impl Exceeded ===

impl Exceeded {
    fn pattern(&self) -> String {
        pattern(&self.model)
    }
}

/// Pattern that names this model and no other, as in `divvy.dev/avoid-card-model`.
pub(crate) fn pattern(model: &str) -> String {
    format!("={model}")
}

// === impl Policies ===

impl Policies {
    /// Whether the answer differs between pods of one shape.
    pub fn is_random(&self) -> bool {
        self.cards.name == PolicyName::Random || self.nodes.name == PolicyName::Random
    }
}

#[cfg(test)]
mod tests {
    use divvy_api::names::annotation::{CARD_POLICY, NODE_POLICY, TIER};

    use super::*;
    use crate::fixture::pod;

    #[test]
    fn pod_policies_win_over_configured_policies() {
        let config = SchedulingConfig {
            card_policy: PolicyName::Binpack,
            node_policy: PolicyName::Spread,
            ..SchedulingConfig::default()
        };
        let policies = |wishes: &[(&str, &str)]| {
            let mut pod = pod("p", 1, 8, 0);
            pod.annotations.extend(wishes.iter().map(|(key, name)| ((*key).to_owned(), (*name).to_owned())));
            let Policies { cards, nodes } =
                Demand::read(&pod, &config).expect("a request").expect("cards").policies(&config);
            assert_eq!(cards.seed, nodes.seed);
            (cards.name, nodes.name)
        };
        assert_eq!(policies(&[]), (PolicyName::Binpack, PolicyName::Spread));
        assert_eq!(policies(&[(CARD_POLICY, "topology")]), (PolicyName::Topology, PolicyName::Spread));
        assert_eq!(policies(&[(NODE_POLICY, "random")]), (PolicyName::Binpack, PolicyName::Random));
        let best_fit = PolicyName::LeastFragmentation;
        assert_eq!(policies(&[(TIER, "mig")]), (best_fit, best_fit), "what is left of an instance is lost");
        assert_eq!(policies(&[(TIER, "mig"), (NODE_POLICY, "spread")]), (best_fit, PolicyName::Spread));
    }
}

//! What a pod asks of a node, read as the node reads it.

use std::sync::Arc;

use divvy_contract::annotation::{self, AnnotationError, PolicyName, Preferences, Request};
use divvy_contract::claim::{ClaimError, Defaults, pod_claims};
use divvy_contract::names::annotation::REQUEST;
use divvy_contract::pod::ContainerKind;
use divvy_contract::{Claim, ContainerClaim, MigProfile, ResourceNames};
use divvy_placement::{PodRequest, Policy};

use crate::pod::PodView;

/// What of the configuration decides how pods are read and compared. The nodes' own must be the same.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Names of the four resources.
    pub names: ResourceNames,
    /// What stands for amounts left out.
    pub defaults: Defaults,
    /// Slots that nodes register for each card.
    pub slots_per_card: u32,
    /// Order of plans and nodes where the pod doesn't say.
    pub policy: Policy,
}

/// A pod's claims and wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The pod.
    pub uid: Arc<str>,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whom it may displace.
    pub priority: i32,
    /// In admission order, one a container.
    pub containers: Vec<ContainerClaim>,
    /// What its author asks for beside amounts.
    pub preferences: Preferences,
}

/// A pod that no node would serve, because it contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDemand {
    /// Its limits.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Its annotations.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
}

/// All of a demand that decides which nodes are good for it. Pods of one shape have one answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    claims: Vec<(ContainerKind, Option<MigProfile>, Option<Claim>)>,
    preferences: Preferences,
}

/// The policies by which a pod's cards and its node are chosen.
#[derive(Clone, Debug)]
pub struct Policies {
    /// Among plans of one node.
    pub cards: Policy,
    /// Among nodes.
    pub nodes: Policy,
}

// === impl Reading ===

impl Default for Reading {
    fn default() -> Self {
        let (names, defaults) = (ResourceNames::default(), Defaults::default());
        Self { names, defaults, slots_per_card: 32, policy: Policy::default() }
    }
}

// === impl Demand ===

impl Demand {
    /// What the pod asks for; `None` if that isn't cards.
    pub fn of(pod: &PodView, reading: &Reading) -> Result<Option<Self>, BadDemand> {
        let request = pod.annotations.get(REQUEST).map(|text| annotation::decode::<Request>(text)).transpose()?;
        let containers = pod_claims(&reading.names, reading.defaults, request.as_ref(), &pod.containers)?;
        if containers.iter().all(|container| container.claim.is_none()) {
            return Ok(None);
        }
        let preferences = Preferences::from_annotations(&pod.annotations)?;
        let (uid, namespace, name) = (pod.uid.as_str().into(), pod.namespace.clone(), pod.name.clone());
        Ok(Some(Self { uid, namespace, name, priority: pod.priority, containers, preferences }))
    }

    /// As placement asks; nothing is settled before a pod is admitted.
    pub fn request(&self) -> PodRequest<'_> {
        PodRequest { containers: &self.containers, settled: &[], preferences: &self.preferences }
    }

    /// Containers with a claim.
    pub fn claiming(&self) -> usize {
        self.containers.iter().filter(|container| container.claim.is_some()).count()
    }

    /// What it has in common with pods that have the same answer.
    pub fn shape(&self) -> Shape {
        let facts = |ContainerClaim { kind, profile, claim, .. }: &ContainerClaim| (*kind, profile.clone(), *claim);
        Shape { claims: self.containers.iter().map(facts).collect(), preferences: self.preferences.clone() }
    }

    /// The policies that its author chose, else those that are configured.
    pub fn policies(&self, configured: &Policy) -> Policies {
        let seed = self
            .uid
            .bytes()
            .fold(configured.seed, |seed, byte| (seed.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let named =
            |name: Option<PolicyName>| Policy { name: name.unwrap_or(configured.name), seed, ..configured.clone() };
        Policies { cards: named(self.preferences.card_policy), nodes: named(self.preferences.node_policy) }
    }
}

// === impl Policies ===

impl Policies {
    /// Whether cards and nodes are compared alike.
    pub fn agree(&self) -> bool {
        self.cards.name == self.nodes.name
    }

    /// Whether the answer differs between pods of one shape.
    pub fn is_random(&self) -> bool {
        self.cards.name == PolicyName::Random || self.nodes.name == PolicyName::Random
    }
}

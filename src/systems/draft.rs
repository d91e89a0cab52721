//! A translation in the making.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::annotation::DialectAnnotation;
use divvy_api::limits::normalise;
use divvy_api::request::{Defaults, MemoryAmount};
use divvy_api::{ContainerKind, ContainerSpec, Memory, ResourceNames};

use crate::pod::{Amounts, Container, Pod};
use crate::reading::{cut, shown};
use crate::{Context, Output, Part, Refusal, Translation, Words};

/// What has been translated of a pod so far.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) context: Context<'a>,
    /// By container.
    outcomes: Vec<Outcome>,
    variables: BTreeMap<usize, Vec<String>>,
    annotations: BTreeMap<String, Option<String>>,
    outputs: Vec<String>,
    warnings: Vec<String>,
}

/// Most characters of a value that are kept as written: a list of 25 UUIDs.
const KEPT: usize = 1024;

/// What has become of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Left as written.
    Untouched,
    /// Requests no GPU.
    NoGpu,
    /// Requests instances of a MIG profile, in a name that is everybody's; words of the other system are removed.
    Instances,
    /// Requests this.
    Part(Part),
}

/// Longest value of an annotation that is read: those that have a meaning are far shorter.
const LONGEST: usize = 4096;

// === impl Draft ===

impl<'a> Draft<'a> {
    pub(crate) fn new(pod: &'a Pod, context: Context<'a>) -> Self {
        Self {
            pod,
            context,
            outcomes: vec![Outcome::Untouched; pod.containers.len()],
            variables: BTreeMap::new(),
            annotations: BTreeMap::new(),
            outputs: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Leaves the pod as it is, for a label by which its author asks for that.
    pub(crate) fn leave_untranslated(&mut self, (key, value): (&str, &str), resources: &[String]) {
        self.warn(format!("label {key}: {value}: the pod is not translated: its limits mean what they mean in Divvy"));
        for container in &self.pod.containers {
            for name in resources.iter().filter(|name| container.names(name)) {
                let field = container.field_of(name);
                self.warn(format!("{field}: stays, and no node offers it: the pod waits for ever"));
            }
        }
    }

    /// What translated containers request.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        self.outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Part(part) => Some(*part),
            Outcome::Untouched | Outcome::NoGpu | Outcome::Instances => None,
        })
    }

    /// Whether a container of the pod requests a GPU, in whatever words.
    pub(crate) fn requests_gpus(&self) -> bool {
        let is_totalled = self.pod.containers.iter().any(|container| container.is_totalled);
        is_totalled || self.parts().next().is_some()
    }

    /// Whether a container requests a part of a GPU, as far as that is known.
    pub(crate) fn shares(&self, container: usize) -> bool {
        match self.outcomes[container] {
            Outcome::Part(part) => !part.is_alone(),
            Outcome::Untouched => self.pod.containers[container].is_totalled,
            Outcome::NoGpu | Outcome::Instances => false,
        }
    }

    /// Whether a container names one of Divvy's resources.
    pub(crate) fn names_ours(&self) -> bool {
        let is_ours = |container: &Container| container.limits.keys().any(|name| self.context.names.is_ours(name));
        self.pod.containers.iter().any(is_ours)
    }

    /// Sets what a container requests; `None`: no GPU.
    pub(crate) fn set_part(&mut self, container: usize, part: Option<Part>) {
        self.outcomes[container] = part.map_or(Outcome::NoGpu, Outcome::Part);
    }

    /// Keeps a container's MIG instances, and removes its words of the other system.
    pub(crate) fn keep_instances(&mut self, container: usize) {
        self.outcomes[container] = Outcome::Instances;
    }

    /// Tells the pod's author.
    pub(crate) fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// Removes a variable of a container, by its position.
    pub(crate) fn remove_variable(&mut self, container: usize, name: &str) {
        self.variables.entry(container).or_default().push(name.to_owned());
    }

    /// Asks the node to tell the pod's programs what the other system would.
    pub(crate) fn tell(&mut self, output: &Output) {
        self.outputs.push(output.name.to_owned());
    }

    /// The value of an annotation of the other system, which is removed.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'a str> {
        let value = self.pod.annotations.get(key)?;
        self.annotations.insert(key.to_owned(), None);
        Some(value.trim())
    }

    /// Removes the annotations of these keys without a word.
    pub(crate) fn remove(&mut self, is_meant: impl Fn(&str) -> bool) {
        let meant = self.pod.annotations.keys().filter(|key| is_meant(key));
        self.annotations.extend(meant.map(|key| (key.clone(), None)));
    }

    /// Removes the annotations of these keys, of which nothing can be kept, and says why.
    pub(crate) fn drop(&mut self, is_meant: impl Fn(&str) -> bool, why: &str) {
        for key in self.pod.annotations.keys().filter(|key| is_meant(key)) {
            self.annotations.insert(key.clone(), None);
            self.warn(format!("annotation {key}: has no effect: {why}"));
        }
    }

    /// Writes one of Divvy's annotations for what `source` says. If the author has written it too, it must say the same.
    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<String>, source: &str) -> Result<(), Refusal> {
        let value = value.into();
        if self.pod.annotations.get(key).is_some_and(|present| *present != value) {
            return Err(Refusal::Twice { first: source.to_owned(), second: format!("annotation {key}") });
        }
        let before = self.annotations.insert(key.to_owned(), Some(value.clone()));
        match before {
            Some(Some(before)) if before != value => Err(Refusal::Value {
                field: source.to_owned(),
                value,
                problem: format!("\"{before}\" is asked for too, and a pod can have one"),
            }),
            _ => Ok(()),
        }
    }

    /// Writes one of Divvy's annotations, unless the author has written it or the other system's words have set it.
    pub(crate) fn set_default(&mut self, key: &'static str, value: &str) {
        if !self.pod.annotations.contains_key(key) && !self.annotations.contains_key(key) {
            self.annotations.insert(key.to_owned(), Some(value.to_owned()));
        }
    }

    /// Refusal of an annotation's value.
    pub(crate) fn refuse(&self, key: &str, problem: impl Into<String>) -> Refusal {
        let value = self.pod.annotations.get(key).map_or("", String::as_str);
        Refusal::Value { field: format!("annotation {key}"), value: shown(value), problem: problem.into() }
    }

    /// Resources beside those of the system that look like them, such as a misspelt one: the pod would wait for ever, and nobody
    /// would know for what.
    pub(crate) fn warn_of_unknown(&mut self, resources: &[String]) {
        let domains: BTreeSet<&str> = resources.iter().filter_map(|name| domain(name)).collect();
        let is_unknown = |name: &&String| {
            let is_theirs = domain(name).is_some_and(|of| domains.contains(of));
            let is_known = resources.contains(name) || self.context.names.is_ours(name);
            is_theirs && name.contains("gpu") && !is_known
        };
        let unknown: Vec<String> = self
            .pod
            .containers
            .iter()
            .flat_map(|container| container.limits.keys().filter(is_unknown).map(|name| container.field_of(name)))
            .collect();
        for field in unknown {
            self.warn(format!("{field}: is none of the resources that Divvy translates: it stays, and the pod waits for a node that offers it"));
        }
    }

    /// Refuses an annotation that is longer than any that has a meaning.
    pub(crate) fn check_lengths(&self, words: &Words) -> Result<(), Refusal> {
        let long = words
            .annotations
            .iter()
            .chain(words.borrowed_annotations)
            .find(|key| self.pod.annotations.get(**key).is_some_and(|value| value.len() > LONGEST));
        long.map_or(Ok(()), |key| Err(self.refuse(key, format!("is longer than {LONGEST} bytes"))))
    }

    /// A pod that was copied from a running one has what the other system wrote on it, about GPUs that it won't get.
    pub(crate) fn remove_outputs(&mut self, words: &Words) {
        self.remove(|key| words.own_annotations.iter().any(|start| key.starts_with(start)));
    }

    /// The translation from the words of the system of this name, to which these resources belong; `None` if nothing of the pod
    /// changes.
    pub(crate) fn finish(self, name: &str, resources: Vec<String>) -> Option<Translation> {
        let names = self.context.names;
        let limits: Vec<Option<Amounts>> = self
            .pod
            .containers
            .iter()
            .zip(&self.outcomes)
            .map(|(container, outcome)| {
                let limits = match outcome {
                    Outcome::Untouched => return None,
                    Outcome::NoGpu => Amounts::new(),
                    Outcome::Instances => ours(&container.limits, names),
                    Outcome::Part(part) => part.limits(names),
                };
                (!is_written(container, &limits, &resources, names)).then_some(limits)
            })
            .collect();
        let annotations: BTreeMap<String, Option<String>> = self
            .annotations
            .into_iter()
            .filter(|(key, value)| self.pod.annotations.get(key) != value.as_ref())
            .collect();
        let is_unchanged = limits.iter().all(Option::is_none)
            && annotations.is_empty()
            && self.variables.is_empty()
            && self.outputs.is_empty();
        if is_unchanged && self.warnings.is_empty() {
            return None;
        }
        let is_told = |name: &String| resources.contains(name) || names.is_ours(name);
        let containers = self.pod.containers.iter().zip(&limits).filter(|(_, limits)| limits.is_some());
        let containers = containers.map(|(container, _)| {
            let told = container.limits.iter().filter(|(name, _)| is_told(name));
            (container.name.clone(), told.map(|(name, amount)| (name.clone(), cut(amount, KEPT))).collect())
        });
        let removed = annotations.iter().filter(|(_, value)| value.is_none());
        let removed = removed.map(|(key, _)| (key.clone(), cut(&self.pod.annotations[key], KEPT)));
        let record = DialectAnnotation {
            name: name.to_owned(),
            containers: containers.collect(),
            annotations: removed.collect(),
            outputs: self.outputs,
        };
        let variables = self.variables;
        let warnings = self.warnings;
        Some(Translation { limits, resources, variables, annotations, record, warnings })
    }
}

/// `nvidia.com` of `nvidia.com/gpu`.
fn domain(resource: &str) -> Option<&str> {
    resource.split_once('/').map(|(domain, _)| domain)
}

/// Those of these limits that are in Divvy's resources.
fn ours(limits: &Amounts, names: &ResourceNames) -> Amounts {
    let ours = limits.iter().filter(|(name, _)| names.is_ours(name));
    ours.map(|(name, amount)| (name.clone(), amount.clone())).collect()
}

/// Whether a container's limits say this already, in whatever spelling, and nothing else; also where the cluster's
/// `defaultMemory` isn't the one that a dialect goes by.
fn is_written(container: &Container, limits: &Amounts, resources: &[String], names: &ResourceNames) -> bool {
    let request = |limits: &Amounts, defaults| {
        let limits = ours(limits, names);
        let spec = ContainerSpec { name: String::new(), kind: ContainerKind::App, index: 0, limits };
        normalise(names, defaults, &spec)
    };
    let another = Defaults { memory: Some(MemoryAmount::Absolute(Memory::mib(1))), ..Defaults::default() };
    let is_same =
        |defaults| request(&container.limits, defaults).is_ok_and(|before| Ok(before) == request(limits, defaults));
    let is_foreign = resources.iter().any(|name| container.names(name));
    !is_foreign && [Defaults::default(), another].into_iter().all(is_same)
}

//! Variables and annotations of other systems, for programs that were written for them: copies, which limit nothing.

use std::collections::BTreeMap;

use divvy_api::annotation::DialectAnnotation;
use divvy_api::{Memory, Share, Tier};

use crate::ALL;

/// What programs written for a system are told.
#[derive(Debug)]
pub struct Output {
    /// Name in `outputs` of [`DialectAnnotation`].
    pub(crate) name: &'static str,
    /// Variables of a container.
    pub(crate) variables: fn(&Allocation<'_>) -> Vec<(String, String)>,
    /// Annotations of its pod.
    pub(crate) annotations: Option<OutputAnnotations>,
}

/// Annotations that a node writes in place of another system.
#[derive(Debug)]
pub(crate) struct OutputAnnotations {
    /// Start of their keys.
    pub(crate) prefix: &'static str,
    /// Annotations of a pod with this record, of whose containers those that have any GPU have these shares first, and which got
    /// them at this time, in nanoseconds since 1970.
    pub(crate) write: WriteAnnotations,
}

type WriteAnnotations = fn(&DialectAnnotation, &[(&str, AllocatedShare)], i128) -> BTreeMap<String, String>;

/// What a container of another system's pod has been given.
#[derive(Clone, Copy, Debug)]
pub struct Allocation<'a> {
    /// What the pod's author wrote.
    pub record: &'a DialectAnnotation,
    /// The container's name.
    pub container: &'a str,
    /// Share of each of its GPUs.
    pub shares: &'a [AllocatedShare],
    /// How they are enforced.
    pub tier: Tier,
}

/// Share of one of a container's GPUs.
#[derive(Clone, Copy, Debug)]
pub struct AllocatedShare {
    /// Position of the GPU on its node.
    pub index: usize,
    /// All memory of the GPU.
    pub memory: Memory,
    /// Part of it.
    pub share: Share,
}

/// Variables that programs of the container find, if its pod was written for another system and asks for them.
pub fn variables(allocation: &Allocation<'_>) -> Vec<(String, String)> {
    outputs(allocation.record).flat_map(|output| (output.variables)(allocation)).collect()
}

/// Annotations that a pod gets in place of the other system's, if its record asks for them. `shares`: the first of each container
/// that has any, in order; `allocated_ns`: when, in nanoseconds since 1970.
pub fn annotations(
    record: &DialectAnnotation,
    shares: &[(&str, AllocatedShare)],
    allocated_ns: i128,
) -> BTreeMap<String, String> {
    let written = outputs(record).filter_map(|output| output.annotations.as_ref());
    written.flat_map(|annotations| (annotations.write)(record, shares, allocated_ns)).collect()
}

/// Whether the node writes the annotation of this key on a pod with this record, in place of the other system.
pub fn is_written(key: &str, record: &DialectAnnotation) -> bool {
    let mut written = outputs(record).filter_map(|output| output.annotations.as_ref());
    written.any(|annotations| key.starts_with(annotations.prefix))
}

/// What a pod's record asks for, as far as it is known.
fn outputs(record: &DialectAnnotation) -> impl Iterator<Item = &'static Output> {
    let all = ALL.into_iter().flat_map(|system| system.outputs);
    all.filter(|output| record.outputs.iter().any(|name| name == output.name))
}

#[cfg(test)]
mod tests;

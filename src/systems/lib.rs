//! Other systems that share GPUs: one file has all that is known of one, [`ALL`] is the list of them.
//!
//! ```text
//! pod as written ──whose?──▶ a system ──translate──▶ our limits and annotations, what is removed, warnings
//!                                            └──────▶ refusal: field, value, what to do
//! ```
//!
//! A system is switched on by name, as a [`Dialect`] of the webhook's configuration. Then its words are replaced where a pod is
//! created, and nothing behind that knows them: one pool of GPUs needs one set of names, because scheduler and kubelet count every
//! name by itself.
//!
//! | of a [`System`] | read by |
//! |---|---|
//! | its words, and how settings translate them | admission; `kubectl divvy migrate`; the chart's match conditions |
//! | its devices, as the kubelet and annotations have them | divvy-node, for pods that run on |
//! | what its programs are told | divvy-node |
//! | its programs, and what they leave | `kubectl divvy doctor` |
//!
//! No I/O, no state; translating what has been translated changes nothing.

mod conditions;
mod devices;
mod dialect;
mod draft;
mod elastic_gpu;
mod gpu_manager;
mod gpu_model;
mod gpushare;
mod hami;
mod kai;
mod key;
mod koordinator;
mod nano_gpu;
mod output;
mod part;
mod pod;
mod program;
mod reading;
mod system;
mod tensor_fusion;
mod time_slicing;
mod values;
mod vgpu_manager;
mod volcano;
mod wishes;
mod words;

use std::collections::BTreeMap;

use divvy_api::ResourceNames;
use divvy_api::annotation::{self, DialectAnnotation, Document as _};

pub use conditions::{CRITICAL, MatchCondition, match_conditions};
pub use devices::{Devices, INDEX, NAME, NamedGpus, named_gpus, names_gpus, uuids_of_drawn_ids};
pub use dialect::{Dialect, check};
pub use key::Key;
pub use output::{AllocatedShare, Allocation, Output, annotations, is_written, variables};
use part::{Part, Size};
pub use pod::{Amounts, Container, Pod};
pub use program::{Mark, Program};
pub use system::{RequiredSetting, System, UnitSetting};
pub use words::Words;

/// All systems, in the order of their pages.
pub const ALL: [&System; 12] = [
    &hami::SYSTEM,
    &nano_gpu::SYSTEM,
    &elastic_gpu::SYSTEM,
    &gpushare::SYSTEM,
    &gpu_model::SYSTEM,
    &gpu_manager::SYSTEM,
    &volcano::SYSTEM,
    &kai::SYSTEM,
    &koordinator::SYSTEM,
    &vgpu_manager::SYSTEM,
    &time_slicing::SYSTEM,
    &tensor_fusion::SYSTEM,
];

/// What a translation has to know of the cluster and the namespace.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Names that requests are written in.
    pub names: &'a ResourceNames,
    /// Whether pods of the namespace may take from others: use compute above their share, and go first.
    pub is_favoured: bool,
}

/// What becomes of a pod of another system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Limits of every container, in the pod's order; `None`: as they are. Other amounts in Divvy's and the dialect's resources are removed.
    pub limits: Vec<Option<Amounts>>,
    /// Resources that are removed from every container that has new limits.
    pub resources: Vec<String>,
    /// Environment variables to remove, by the container's position.
    pub variables: BTreeMap<usize, Vec<String>>,
    /// Annotations to set or, `None`, to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// What was written, for people and for what is told to the pod's programs.
    pub record: DialectAnnotation,
    /// What isn't kept, or means something else here.
    pub warnings: Vec<String>,
}

/// Why a pod isn't translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A value that this system, or Divvy, doesn't know.
    #[error("{field}: {value}: {problem}")]
    Value {
        /// Path of the limit, annotation or variable.
        field: String,
        /// Value as written, cut where it is long.
        value: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// Two spellings of one thing.
    #[error("{first} and {second} both say the same thing, or its opposite: remove one of them")]
    Twice {
        /// Path of one.
        first: String,
        /// Path of the other.
        second: String,
    },
    /// Words of two systems.
    #[error(
        "{first} is of {first_system} and {second} of {second_system}: a pod is translated from one system: remove the words of the other"
    )]
    Mixed {
        /// Path of one.
        first: String,
        /// Whose it is.
        first_system: String,
        /// Path of the other.
        second: String,
        /// Whose it is.
        second_system: String,
    },
}

/// The one of these dialects that a pod is written in.
pub fn spoken<'d>(pod: &Pod, dialects: &'d [Dialect], names: &ResourceNames) -> Result<Option<&'d Dialect>, Refusal> {
    let borrowers = dialects.iter().filter(|dialect| !dialect.system().words.borrowed_annotations.is_empty());
    let borrowers = borrowers.filter(|dialect| dialect.first_resource(pod, names).is_some());
    // Beside their resources such an annotation says nothing of the system that it was borrowed from.
    let borrowed: Vec<&str> =
        borrowers.flat_map(|dialect| dialect.system().words.borrowed_annotations).copied().collect();
    let mut spoken = dialects.iter().filter_map(|dialect| Some((dialect, dialect.first_word(pod, names, &borrowed)?)));
    match (spoken.next(), spoken.next()) {
        (Some((first, word)), Some((second, other))) => Err(Refusal::Mixed {
            first: word,
            first_system: first.name().to_owned(),
            second: other,
            second_system: second.name().to_owned(),
        }),
        (Some((dialect, _)), None) => Ok(Some(dialect)),
        (None, _) => {
            let is_there = |key: &&str| pod.annotations.contains_key(*key);
            let shares = |dialect: &&Dialect| dialect.system().words.shared_annotations.iter().any(is_there);
            if let Some(dialect) = dialects.iter().find(shares) {
                return Ok(Some(dialect));
            }
            // What has been translated from another system is in our words, with our meaning.
            let of_another = |dialect: &&Dialect| translated_from(pod).is_some_and(|name| name != dialect.name());
            let mut readers = dialects.iter().filter(|dialect| dialect.reads_our_names(names));
            Ok(readers.next().filter(|reader| !of_another(reader)))
        }
    }
}

/// Whether a scheduler of this name is one of the systems' own.
pub fn is_scheduler(name: &str) -> bool {
    ALL.into_iter().any(|system| system.schedulers.contains(&name))
}

/// Whether a key is the one of a pattern, or begins with what is before the `*` at the pattern's end.
fn is_meant(pattern: &str, key: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => key.starts_with(start),
        None => key == pattern,
    }
}

/// The system from whose words the pod has been translated already.
fn translated_from(pod: &Pod) -> Option<String> {
    let record: DialectAnnotation = annotation::decode(pod.annotations.get(DialectAnnotation::KEY)?).ok()?;
    Some(record.name)
}

#[cfg(test)]
mod tests;

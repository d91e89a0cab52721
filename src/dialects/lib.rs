//! Other systems' spellings of a GPU request, and what they mean in Divvy's.
//!
//! ```text
//! pod as written ──whose?──▶ a system ──translate──▶ our limits and annotations, what is removed, warnings
//!                                            └──────▶ refusal: field, value, what to do
//! ```
//!
//! A dialect is switched on by name. Then its words are replaced where a pod is created, and nothing behind that knows them:
//! one pool of GPUs needs one set of names, because scheduler and kubelet count every name by itself. Each file knows the
//! words of one system. No I/O, no state; translating what has been translated changes nothing.

mod conditions;
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
mod pod;
mod reading;
mod settings;
mod time_slicing;
mod values;
mod vgpu_manager;
mod volcano;
mod wishes;

use std::collections::BTreeMap;

use divvy_api::ResourceNames;
use divvy_api::annotation::{self, DialectAnnotation, DialectOutput, Document as _};

pub use conditions::{CRITICAL, MatchCondition, match_conditions};
use draft::Draft;
pub use key::Key;
pub use pod::{Amounts, Container, Pod};
use reading::Reading;
pub use settings::{Dialect, check};

/// `schedulerName`s of the systems' own schedulers, which nobody runs any more once the system is replaced.
pub const SCHEDULERS: [&str; 6] =
    ["hami-scheduler", "4pd-scheduler", "volcano", "kai-scheduler", "vgpu-scheduler", "koord-scheduler"];

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

/// What is known of one other system.
trait System {
    /// Resources that its users write; without ours.
    fn resources(&self, names: &ResourceNames) -> Vec<String>;

    /// Annotations that its users write.
    fn inputs(&self) -> &'static [&'static str] {
        &[]
    }

    /// Annotations that its users write of GPUs and of other devices alike: they stay.
    fn shared_inputs(&self) -> &'static [&'static str] {
        &[]
    }

    /// Annotations of another system that it reads too, beside resources of its own.
    fn borrowed(&self) -> &'static [&'static str] {
        &[]
    }

    /// Starts of annotations that it writes itself, and that a copied pod may carry.
    fn outputs(&self) -> &'static [&'static str] {
        &[]
    }

    /// Annotations that ask for a GPU by themselves, without any resource.
    fn requesting_annotations(&self) -> &'static [Key] {
        &[]
    }

    /// Labels by which a pod is left as it is.
    fn opt_outs(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Whether it says what our own names mean, where a pod has no words of another system.
    fn reads_our_names(&self, _names: &ResourceNames) -> bool {
        false
    }

    /// Request of a container that names one of its resources, or of Divvy's if it reads them; `None`: no GPU.
    fn part(&self, _container: Reading<'_>, _draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        Ok(None)
    }

    /// What it says for the whole pod, after all containers.
    fn pod(&self, _draft: &mut Draft<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Part of each of so many GPUs; neither memory nor cores: whole ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    cards: u64,
    memory: Option<Size>,
    /// Percent of the compute of each, 0 to 100.
    cores: u64,
}

/// Memory of each GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Mib(u64),
    Percent(u64),
}

/// The one of these dialects that a pod is written in.
pub fn spoken<'d>(pod: &Pod, dialects: &'d [Dialect], names: &ResourceNames) -> Result<Option<&'d Dialect>, Refusal> {
    let borrowers = dialects.iter().filter(|dialect| !dialect.system().borrowed().is_empty());
    let borrowers = borrowers.filter(|dialect| dialect.first_resource(pod, names).is_some());
    // Beside their resources such an annotation says nothing of the system that it was borrowed from.
    let borrowed: Vec<&str> = borrowers.flat_map(|dialect| dialect.system().borrowed()).copied().collect();
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
            let shares = |dialect: &&Dialect| dialect.system().shared_inputs().iter().any(is_there);
            if let Some(dialect) = dialects.iter().find(shares) {
                return Ok(Some(dialect));
            }
            // What has been translated from another system is in our words, with our meaning.
            let of_another = |dialect: &&Dialect| translated_from(pod).is_some_and(|name| name != dialect.name());
            let mut readers = dialects.iter().filter(|dialect| dialect.system().reads_our_names(names));
            Ok(readers.next().filter(|reader| !of_another(reader)))
        }
    }
}

/// Whether the node writes the annotation of this key on a pod with this record, in place of the other system.
pub fn is_written(key: &str, record: &DialectAnnotation) -> bool {
    record.outputs.contains(&DialectOutput::Gpushare) && key.starts_with(gpushare::WRITTEN)
}

/// The system from whose words the pod has been translated already.
fn translated_from(pod: &Pod) -> Option<String> {
    let record: DialectAnnotation = annotation::decode(pod.annotations.get(DialectAnnotation::KEY)?).ok()?;
    Some(record.name)
}

// === impl Part ===

impl Part {
    /// So many whole GPUs.
    fn whole(cards: u64) -> Self {
        Self { cards, memory: None, cores: 0 }
    }

    /// Whether no other container uses its GPUs.
    fn is_alone(self) -> bool {
        self.cores == 100 || (self.memory.is_none() && self.cores == 0)
    }

    /// Limits of a container, per GPU, under these names.
    fn limits(self, names: &ResourceNames) -> Amounts {
        let unit = names.memory_unit.as_mib().max(1);
        let memory = self.memory.map(|memory| match memory {
            Size::Mib(mib) => (&names.memory, mib.div_ceil(unit)),
            Size::Percent(percent) => (&names.memory_percentage, percent),
        });
        let cores = (self.cores > 0).then_some((&names.cores, self.cores));
        let amounts = [Some((&names.count, self.cards)), memory, cores].into_iter().flatten();
        amounts.map(|(name, amount)| (name.to_string(), amount.to_string())).collect()
    }
}

#[cfg(test)]
mod tests;

//! What other systems' users write in their pods, and what the systems write there.

use crate::Key;
use crate::pod::Pod;

/// What is written in a system's pods.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Resources that its users write, but for those whose names depend on the configuration.
    pub resources: &'static [&'static str],
    /// Whether its users write Divvy's own resources too.
    pub shares_names: bool,
    /// Annotations that its users write.
    pub annotations: &'static [&'static str],
    /// Annotations that its users write of GPUs and of other devices alike: they stay.
    pub shared_annotations: &'static [&'static str],
    /// Annotations of another system that it reads too, beside resources of its own.
    pub borrowed_annotations: &'static [&'static str],
    /// Annotations that ask for a GPU by themselves, without any resource.
    pub requests: &'static [Key],
    /// Labels by which a pod is left as it is.
    pub opt_outs: &'static [(&'static str, &'static str)],
    /// Starts of annotations that it writes itself, and that a copied pod may carry.
    pub own_annotations: &'static [&'static str],
}

// === impl Words ===

impl Words {
    /// None at all.
    pub(crate) const NONE: Self = Self {
        resources: &[],
        shares_names: false,
        annotations: &[],
        shared_annotations: &[],
        borrowed_annotations: &[],
        requests: &[],
        opt_outs: &[],
        own_annotations: &[],
    };

    /// The label by which a pod is left as it is, if it has one.
    pub(crate) fn opt_out(&self, pod: &Pod) -> Option<(&'static str, &'static str)> {
        self.opt_outs.iter().copied().find(|(key, value)| pod.labels.get(*key).is_some_and(|text| text == value))
    }
}

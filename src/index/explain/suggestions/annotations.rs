//! Annotations of the pod that alone keep it from free GPUs.

use divvy_api::names::annotation::INPUTS;

use super::{Change, MOST, Search, Suggestion};
use crate::demand::{Demand, Exceeded};
use crate::pod::PodView;

impl Search<'_> {
    pub(super) fn by_annotation(&self, pod: &PodView, exceeded: &[Exceeded]) -> Vec<Suggestion> {
        INPUTS.into_iter().filter_map(|key| self.without_annotation(pod, key, exceeded)).take(MOST).collect()
    }

    fn without_annotation(&self, pod: &PodView, key: &'static str, exceeded: &[Exceeded]) -> Option<Suggestion> {
        let mut pod = pod.clone();
        let value = pod.annotations.remove(key)?;
        let demand = Demand::read(&pod, self.config).ok()??;
        let allowed = demand.avoiding(exceeded);
        let node = self.first_fit(&allowed)?;
        let state = node.state_without(|holder| self.is_own(holder));
        Some(self.found(Change::DropAnnotation { key, value }, node, &state, &allowed))
    }
}

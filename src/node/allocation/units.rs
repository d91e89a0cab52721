//! Units of memory and compute, which the kubelet counts and hands out by itself.

use divvy_contract::claim::asks_for_cards;
use divvy_contract::{ContainerSpec, ResourceName};

use super::{Allocator, Refusal};
use crate::kubelet::pods::PodView;

// === impl Allocator ===

impl Allocator {
    /// `GetPreferredAllocation` for units: those that must be among them, then those of the cards of the pod under
    /// admission, then any.
    pub fn prefer_units(&self, available: Vec<String>, required: Vec<String>, size: usize) -> Vec<String> {
        let cards = self.admission.as_ref().map(|admission| admission.cards()).unwrap_or_default();
        let is_near =
            |id: &String| id.split_once("::").is_some_and(|(card, _)| cards.iter().any(|own| own.as_str() == card));
        let (near, far): (Vec<_>, Vec<_>) =
            available.into_iter().filter(|id| !required.contains(id)).partition(is_near);
        required.into_iter().chain(near).chain(far).take(size).collect()
    }

    /// `Allocate` for units: refused for a container that asks for no card, which would run without one.
    ///
    /// Such a pod is refused at its first call, so one that may be under admission is: no other was ever let in.
    pub fn count_units(&mut self, resource: &ResourceName, pods: &[PodView], count: usize) -> Result<(), Refusal> {
        let names = &self.settings.names;
        let question = self.question(resource, count);
        let asking = |pod: &PodView, with_cards: bool| {
            let asks =
                |container: &&ContainerSpec| question.fits(container) && asks_for_cards(names, container) == with_cards;
            pod.containers.iter().find(asks).map(|container| container.name.clone())
        };
        let mut may_come = pods.iter().filter(|pod| self.session.could_be_under_admission(pod));
        let alone = may_come.find_map(|pod| Some((pod, asking(pod, false)?)));
        if let Some((pod, container)) = alone {
            let container = format!("container \"{container}\" of pod {pod}");
            let refusal = Refusal::UnitsAlone { container, resource: resource.clone(), count: names.count.clone() };
            return self.remember_refusal(&pod.uid, Err(refusal));
        }
        let is_meant = pods.iter().any(|pod| !pod.has_ended() && asking(pod, true).is_some());
        if is_meant { Ok(()) } else { Err(question.nobody().into()) }
    }
}

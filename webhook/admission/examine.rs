//! All that is found out about a pod before anything is changed or answered.

use divvy_api::annotation::Preferences;

use super::Settings;
use super::pod::{Place, Pod};
use super::refusal::Refusal;
use super::requests::{self, Requests};
use super::rules::{self, GpuAccess};

/// A pod that can be served.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) requests: Requests,
    /// GPU access of every init and app container, in admission order.
    pub(super) accesses: Vec<GpuAccess>,
    pub(super) preferences: Preferences,
    pub(super) warnings: Vec<String>,
}

/// Reads a new pod of `namespace`. All that is wrong with its requests and annotations is said at once; then, because it
/// depends on the requests, all that is wrong with its variables and mounts.
pub(super) fn examine(pod: &Pod, namespace: &str, settings: &Settings) -> Result<Examined, Vec<Refusal>> {
    let mut refusals: Vec<Refusal> =
        pod.ephemeral_containers().filter_map(|place| requests::no_request(&place, &settings.names)).collect();
    let preferences = rules::preferences(pod, namespace, settings).map_err(|found| refusals.extend(found));
    let requests = Requests::read(pod, settings).map_err(|found| refusals.extend(found));
    let (Ok(preferences), Ok(requests)) = (preferences, requests) else { return Err(refusals) };
    let places = pod.containers().zip(&requests.0);
    let accesses: Vec<_> =
        places.map(|(place, container)| GpuAccess::new(&place, container.request, settings)).collect();
    refusals.extend(rules::containers(pod, &accesses, settings));
    refusals.extend(rules::oversubscription(&preferences, &requests.0, &settings.names));
    refusals.extend(rules::same_card(&preferences, &requests.0));
    refusals.extend(rules::compute_limit(&preferences, &requests.0));
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let warnings = rules::warnings(pod, &accesses);
    Ok(Examined { requests, accesses, preferences, warnings })
}

/// Ephemeral containers that are added to a pod, with their access. They request nothing, the kubelet gives them no device,
/// and nothing keeps them to the share of another container: so they see no GPU, whichever pod they are added to.
pub(super) fn debugged<'p>(
    old: &'p Pod,
    new: &'p Pod,
    settings: &Settings,
) -> Result<Vec<(Place<'p>, GpuAccess)>, Vec<Refusal>> {
    let added = new.added_ephemeral_containers(old);
    let added: Vec<_> = added.map(|place| (place, GpuAccess::new(&place, None, settings))).collect();
    let refusals: Vec<_> = added
        .iter()
        .flat_map(|(place, access)| {
            requests::no_request(place, &settings.names).into_iter().chain(rules::container(place, *access, settings))
        })
        .collect();
    if refusals.is_empty() { Ok(added) } else { Err(refusals) }
}

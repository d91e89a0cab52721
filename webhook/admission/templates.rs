//! Workloads whose pods a controller makes: nobody reads what that controller is told, so their author is told here. None is
//! refused or changed, but for Jobs where that is asked for: who counts a Job by its template, as Kueue does, is to count what
//! its pods request once they are admitted.

use std::collections::BTreeMap;

use divvy_api::annotation::{Document as _, RequestAnnotation};
use divvy_api::names::label::COMPLETE_JOBS;
use serde::Deserialize;
use serde_json::json;

use super::mutate::mutate;
use super::patch::{Changes, Patch};
use super::pod::Pod;
use super::refusal::Refusal;
use super::review::Answer;
use super::translate::copied;
use super::{Fits, Settings};

/// Anything with a pod template: in its spec, or, a CronJob's, in that of its job.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Workload {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Metadata {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Spec {
    template: Option<Pod>,
    job_template: Option<Box<Workload>>,
}

/// Gives a Job to one of Kueue's queues (kueue.sigs.k8s.io/docs/reference/labels-and-annotations).
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

// === impl Workload ===

impl Workload {
    fn template(&self) -> Option<&Pod> {
        let Spec { template, job_template } = self.spec.as_ref()?;
        job_template.as_ref().map_or(template.as_ref(), |job| job.template())
    }

    /// The template of a Job, if Divvy has anything to do with it.
    fn template_of_job(&self, settings: &Settings) -> Option<&Pod> {
        self.spec.as_ref()?.template.as_ref().filter(|pod| pod.is_ours(settings))
    }

    /// What is to be said about it.
    pub(super) fn advice(&self, namespace: &str, settings: &Settings, fits: &Fits<'_>) -> Vec<String> {
        let Some(pod) = self.template().filter(|pod| pod.is_ours(settings)) else { return Vec::new() };
        match mutate(pod, namespace, settings, fits) {
            Ok((answer, _)) => answer.warnings.into_iter().map(|warning| format!("its pods: {warning}")).collect(),
            Err(refusals) => refusals.iter().map(|refusal| format!("its pods would be refused: {refusal}")).collect(),
        }
    }

    /// What is to be said about a Job that Kueue counts otherwise than its pods.
    pub(super) fn miscounted(&self, settings: &Settings) -> Option<String> {
        self.metadata.as_ref()?.labels.as_ref()?.get(QUEUE)?;
        let template = self.template_of_job(settings)?;
        template.annotation(RequestAnnotation::KEY).is_none().then(|| {
            format!(
                "label {QUEUE}: Kueue counts the template as it is written, not what its pods request once they are \
                 admitted: label the namespace {COMPLETE_JOBS}=true, and create the Job again"
            )
        })
    }

    /// Answers the review of a new Job: its template becomes what its pods would, but for what depends on the moment.
    pub(super) fn complete(&self, namespace: &str, settings: &Settings) -> Result<Answer, Vec<Refusal>> {
        self.template_of_job(settings).map_or(Ok(Answer::default()), |pod| complete(pod, namespace, settings))
    }

    /// Answers the review of a changed Job, whose template was completed if it ever will be: the API server keeps it from
    /// then on. One that is applied again brings the amounts of its author along with the annotation that we wrote.
    pub(super) fn complete_again(&self, old: Option<&Self>, namespace: &str, settings: &Settings) -> Answer {
        // With what tells of another pod it was copied from one, and isn't ours.
        let is_completed = |pod: &&Pod| pod.annotation(RequestAnnotation::KEY).is_some() && copied(pod).is_empty();
        let old = old.and_then(|old| old.template_of_job(settings)).filter(is_completed);
        let Some((pod, _)) = self.template_of_job(settings).zip(old) else { return Answer::default() };
        let again = complete(pod, namespace, settings);
        again.or_else(|_| complete(&as_authored(pod, settings), namespace, settings)).unwrap_or_default()
    }
}

/// A template without what we have written, but for limits.
fn as_authored(pod: &Pod, settings: &Settings) -> Pod {
    let mut authored = pod.clone();
    authored.annotate(&[(RequestAnnotation::KEY.to_owned(), None)].into());
    for (at, place) in pod.containers().enumerate() {
        let ours = place.requests().into_iter().flat_map(BTreeMap::keys).filter(|name| settings.names.is_ours(name));
        authored.change_amounts(at, &Changes::new(), &ours.map(|name| (name.clone(), None)).collect());
    }
    authored
}

fn complete(pod: &Pod, namespace: &str, settings: &Settings) -> Result<Answer, Vec<Refusal>> {
    // The gate is for pods alone.
    let (answer, _) = mutate(pod, namespace, settings, &|_| None)?;
    let mut patch = Patch::default();
    if !pod.has_metadata() && !answer.patch.is_empty() {
        patch.add("/metadata", json!({}));
    }
    patch.extend(answer.patch);
    let warnings = answer.warnings.into_iter().map(|warning| format!("its pods: {warning}")).collect();
    Ok(Answer { patch: patch.within("/spec/template"), warnings, ..answer })
}

//! Workloads whose pods a controller makes: nobody reads what that controller is told, so their author is told here. A
//! workload is never refused and never changed.

use serde::Deserialize;

use super::mutate::mutate;
use super::pod::Pod;
use super::{Fits, Settings};

/// Anything with a pod template: in its spec, or, a CronJob's, in that of its job.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Workload {
    spec: Option<Spec>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Spec {
    template: Option<Pod>,
    job_template: Option<Box<Workload>>,
}

// === impl Workload ===

impl Workload {
    fn template(&self) -> Option<&Pod> {
        let Spec { template, job_template } = self.spec.as_ref()?;
        job_template.as_ref().map_or(template.as_ref(), |job| job.template())
    }

    /// What is to be said about it.
    pub(super) fn advice(&self, namespace: &str, settings: &Settings, fits: &Fits<'_>) -> Vec<String> {
        let Some(pod) = self.template().filter(|pod| pod.is_ours(settings)) else { return Vec::new() };
        match mutate(pod, namespace, settings, fits) {
            Ok(answer) => answer.warnings.into_iter().map(|warning| format!("its pods: {warning}")).collect(),
            Err(refusals) => refusals.iter().map(|refusal| format!("its pods would be refused: {refusal}")).collect(),
        }
    }
}

//! Workloads whose pods a controller makes: nobody reads what that controller is told, so their author is told here. A
//! workload is never refused and never changed.

use serde_json::Value;

use super::Settings;
use super::hints::{Fit, PodDemand};
use super::mutate::mutate;
use super::pod::Pod;

/// What is to be said about a workload of this kind.
pub(super) fn advise(
    kind: &str,
    object: &Value,
    namespace: &str,
    settings: &Settings,
    fits: &dyn Fn(&PodDemand) -> Fit,
) -> Vec<String> {
    let field = if kind == "CronJob" { "spec.jobTemplate.spec.template" } else { "spec.template" };
    let Some(template) = object.pointer(&format!("/{}", field.replace('.', "/"))) else { return Vec::new() };
    let pod = match Pod::read(field, template) {
        Ok(pod) if pod.is_ours(&settings.names) => pod,
        Ok(_) => return Vec::new(),
        Err(refusal) => return vec![refusal.to_string()],
    };
    match mutate(&pod, namespace, settings, fits) {
        Ok(answer) => answer.warnings.into_iter().map(|warning| format!("its pods: {warning}")).collect(),
        Err(refusals) => refusals.iter().map(|refusal| format!("its pods would be refused: {refusal}")).collect(),
    }
}

//! nvidia-gpu-scheduler: whole GPUs of a model that the pod names.

use divvy_api::names::annotation::CARD_MODEL;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::system::Translate;
use crate::{Program, Refusal, System, Words};

/// The model annotation of nvidia-gpu-scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuModel {}

/// Annotation of the first version, and of the second.
const MODEL: [&str; 2] = ["nvidia.com/gpu.model", "nvidia-gpu-scheduler/gpu.model"];

pub(crate) const SYSTEM: System = System {
    words: Words { annotations: &MODEL, ..Words::NONE },
    // caden2016/nvidia-gpu-scheduler: deployments/helm/nvidia-gpu-scheduler, its values.yaml and crds. It writes nothing on Nodes.
    programs: &[Program {
        name: "nvidia-gpu-scheduler",
        daemon_sets: &["nvidia-gpu-scheduler", "gpuserver-ds"],
        objects: &[
            "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.metrics.nvidia.com",
            "/apis/apiregistration.k8s.io/v1/apiservices/v1.nvidia-gpu-scheduler",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpunodes.resources.scheduler.caden2016.github.io",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpupods.resources.scheduler.caden2016.github.io",
        ],
        ..Program::NONE
    }],
    ..System::new::<GpuModel>("gpu-model", "nvidia-gpu-scheduler")
};

// === impl GpuModel ===

impl Translate for GpuModel {
    fn pod(&self, draft: &mut Draft<'_>) -> Result<(), Refusal> {
        for key in MODEL {
            match draft.take(key) {
                None => {}
                Some("") => return Err(draft.refuse(key, "names no model")),
                Some(model) if model.contains([',', '*']) => {
                    return Err(
                        draft.refuse(key, "is not the name of one model: several are written in divvy.dev/card-model")
                    );
                }
                // It compares whole names; without the sign, longer names that contain these words would do too.
                Some(model) => draft.set(CARD_MODEL, format!("={model}"), &format!("annotation {key}"))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

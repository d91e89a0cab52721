//! nvidia-gpu-scheduler: whole GPUs of a model that the pod names.

use divvy_api::ResourceNames;
use divvy_api::names::annotation::CARD_MODEL;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::{Refusal, System};

/// The model annotation of nvidia-gpu-scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuModel {}

/// Annotation of the first version, and of the second.
const MODEL: [&str; 2] = ["nvidia.com/gpu.model", "nvidia-gpu-scheduler/gpu.model"];

// === impl GpuModel ===

impl System for GpuModel {
    fn resources(&self, _names: &ResourceNames) -> Vec<String> {
        Vec::new()
    }

    fn inputs(&self) -> &'static [&'static str] {
        &MODEL
    }

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

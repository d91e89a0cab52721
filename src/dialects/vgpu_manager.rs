//! vgpu-manager, whose resources are in the domain of NVIDIA's own.

use divvy_api::ResourceNames;
use serde::{Deserialize, Serialize};

use crate::draft::Draft;
use crate::reading::Reading;
use crate::volcano::several;
use crate::{Part, Refusal, System};

/// vgpu-manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VgpuManager {}

const NUMBER: &str = "nvidia.com/vgpu-number";
const MEMORY: &str = "nvidia.com/vgpu-memory";
const CORES: &str = "nvidia.com/vgpu-cores";

// === impl VgpuManager ===

impl System for VgpuManager {
    fn resources(&self, _names: &ResourceNames) -> Vec<String> {
        [NUMBER, MEMORY, CORES].map(str::to_owned).into()
    }

    fn outputs(&self) -> &'static [&'static str] {
        &["nvidia.com/pre-allocated", "nvidia.com/real-allocated", "nvidia.com/predicate-"]
    }

    fn part(&self, container: Reading<'_>, draft: &mut Draft<'_>) -> Result<Option<Part>, Refusal> {
        several(container, [NUMBER, MEMORY, "", CORES], 1, draft)
    }
}

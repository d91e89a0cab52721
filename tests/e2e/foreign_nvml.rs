//! Cards of an NVML library that isn't our stand-in, as it describes them itself.

use std::path::Path;

use anyhow::Context as _;
use fake_nvml::{CardScenario, Scenario};
use nvml_wrapper::Nvml;
use serde_json::json;

/// The node that the library describes.
pub(crate) fn scenario(library: &Path) -> anyhow::Result<Scenario> {
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init().context("loading DIVVY_NVML")?;
    let card = |index| {
        let device = nvml.device_by_index(index)?;
        let (memory, address) = (device.memory_info()?.total, device.pci_info()?.bus_id);
        let (uuid, model, minor) = (device.uuid()?, device.name()?, device.minor_number()?);
        let card =
            json!({ "uuid": uuid, "model": model, "memory_total": memory, "pci_bus_id": address, "minor": minor });
        anyhow::Ok(serde_json::from_value::<CardScenario>(card)?)
    };
    let cards = (0..nvml.device_count()?).map(card).collect::<anyhow::Result<_>>()?;
    Ok(Scenario { cards, ..Scenario::default() })
}

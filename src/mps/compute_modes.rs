//! Compute modes of the GPUs: EXCLUSIVE_PROCESS while MPS serves them, afterwards what they were.
//!
//! The previous modes are kept in a file, so that they outlive a supervisor that is killed. The driver forgets modes at a
//! reboot, and so does `run-dir`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::{fs, io};

use anyhow::{Context as _, bail, ensure};
use divvy_api::CardId;
use nvml_wrapper::enum_wrappers::device::ComputeMode;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as sys;
use tracing::{info, warn};

use divvy_runtime::files;

/// Sets compute modes, and restores the previous ones.
#[derive(Clone, Debug)]
pub(super) struct ComputeModes {
    library: PathBuf,
    file: PathBuf,
}

/// Previous mode by GPU, by the names of `nvidia-smi -c`.
type Previous = BTreeMap<CardId, String>;

const NAMES: [(ComputeMode, &str); 3] = [
    (ComputeMode::Default, "DEFAULT"),
    (ComputeMode::Prohibited, "PROHIBITED"),
    (ComputeMode::ExclusiveProcess, "EXCLUSIVE_PROCESS"),
];

// === impl ComputeModes ===

impl ComputeModes {
    pub(super) fn new(library: PathBuf, file: PathBuf) -> Self {
        Self { library, file }
    }

    /// Sets all GPUs to EXCLUSIVE_PROCESS that answer and aren't in MIG mode, and returns them; an error if there is none,
    /// or if a process uses one.
    pub(super) fn set_exclusive(&self) -> anyhow::Result<Vec<CardId>> {
        let nvml = self.open()?;
        let mut gpus = Vec::new();
        let mut failures = Vec::new();
        for index in 0..nvml.device_count().context("nvmlDeviceGetCount")? {
            match gpu_at(&nvml, index) {
                Ok(gpu) => gpus.extend(gpu),
                Err(problem) => failures.push(format!("GPU at index {index} is left out: {problem:#}")),
            }
        }
        ensure!(!gpus.is_empty(), "no GPU without MIG mode; {}", failures.join("; "));
        for (id, device) in &gpus {
            let used = || format!("{id}: nvmlDeviceGetComputeRunningProcesses");
            let pids: Vec<String> = device
                .running_compute_processes()
                .with_context(used)?
                .iter()
                .map(|process| process.pid.to_string())
                .collect();
            if !pids.is_empty() {
                bail!("processes {} use {id} and would lose it: end them, or drain the node", pids.join(", "));
            }
        }
        let mut previous = self.load()?;
        for (id, device) in &mut gpus {
            let mode = device.compute_mode().with_context(|| format!("{id}: nvmlDeviceGetComputeMode"))?;
            if mode == ComputeMode::ExclusiveProcess {
                continue;
            }
            previous.entry(id.clone()).or_insert_with(|| name(mode).to_owned());
            self.save(&previous)?;
            let set = device.set_compute_mode(ComputeMode::ExclusiveProcess);
            set.with_context(|| format!("{id}: nvmlDeviceSetComputeMode EXCLUSIVE_PROCESS"))?;
        }
        for problem in failures {
            warn!("{problem}");
        }
        Ok(gpus.into_iter().map(|(id, _)| id).collect())
    }

    /// Restores the previous modes. A mode that was changed by another program meanwhile stays.
    pub(super) fn restore(&self) -> anyhow::Result<()> {
        let mut previous = self.load()?;
        if previous.is_empty() {
            return Ok(());
        }
        let nvml = self.open()?;
        for (id, name) in previous.clone() {
            let mode = NAMES.iter().find(|(_, known)| *known == name).map(|(mode, _)| *mode);
            match (nvml.device_by_uuid(id.as_str()), mode) {
                (Ok(mut device), Some(mode)) => {
                    let now = device.compute_mode().with_context(|| format!("{id}: nvmlDeviceGetComputeMode"))?;
                    if now == ComputeMode::ExclusiveProcess {
                        let set = device.set_compute_mode(mode);
                        set.with_context(|| format!("{id}: nvmlDeviceSetComputeMode {name}"))?;
                        info!(gpu = %id, "compute mode restored to {name}");
                    }
                }
                (Err(error), _) => warn!(gpu = %id, "compute mode can't be restored to {name}: {error}"),
                (Ok(_), None) => warn!(gpu = %id, "{name:?} in {} is not a compute mode", self.file.display()),
            }
            previous.remove(&id);
            self.save(&previous)?;
        }
        fs::remove_file(&self.file).with_context(|| format!("removing {}", self.file.display()))
    }

    fn open(&self) -> anyhow::Result<Nvml> {
        let nvml = Nvml::builder().lib_path(self.library.as_os_str()).init();
        nvml.with_context(|| format!("loading NVML from {}", self.library.display()))
    }

    fn load(&self) -> anyhow::Result<Previous> {
        match fs::read(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Previous::new()),
            text => serde_json::from_slice(&text.with_context(|| format!("reading {}", self.file.display()))?)
                .with_context(|| {
                    format!("{}: remove it if the previous compute modes don't matter", self.file.display())
                }),
        }
    }

    fn save(&self, previous: &Previous) -> anyhow::Result<()> {
        let text = serde_json::to_vec(previous)?;
        files::replace(&self.file, text).with_context(|| format!("writing {}", self.file.display()))
    }
}

/// The GPU at an index, unless it is in MIG mode.
fn gpu_at(nvml: &Nvml, index: u32) -> anyhow::Result<Option<(CardId, Device<'_>)>> {
    let device = nvml.device_by_index(index).context("nvmlDeviceGetHandleByIndex")?;
    let id: CardId = device.uuid().context("nvmlDeviceGetUUID")?.parse()?;
    Ok(if is_mig_enabled(&device).context("nvmlDeviceGetMigMode")? { None } else { Some((id, device)) })
}

fn is_mig_enabled(device: &Device<'_>) -> Result<bool, NvmlError> {
    match device.mig_mode() {
        Ok(mode) => Ok(mode.current == sys::NVML_DEVICE_MIG_ENABLE),
        Err(NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

fn name(mode: ComputeMode) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == mode).map_or("DEFAULT", |(_, name)| name)
}

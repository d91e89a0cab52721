//! The cards' compute modes: EXCLUSIVE_PROCESS while the service has them, afterwards what they were.
//!
//! What they were stands in a file, so that it isn't lost with a supervisor that is killed. The driver forgets modes at a
//! reboot, and so does `runDir`.

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

use crate::container::files;

/// How they are read and changed.
#[derive(Clone, Debug)]
pub(super) struct Modes {
    library: PathBuf,
    file: PathBuf,
}

/// By card, in the words of `nvidia-smi -c`.
type Known = BTreeMap<CardId, String>;

const WORDS: [(ComputeMode, &str); 3] = [
    (ComputeMode::Default, "DEFAULT"),
    (ComputeMode::Prohibited, "PROHIBITED"),
    (ComputeMode::ExclusiveProcess, "EXCLUSIVE_PROCESS"),
];

// === impl Modes ===

impl Modes {
    pub(super) fn new(library: PathBuf, file: PathBuf) -> Self {
        Self { library, file }
    }

    /// Puts all cards into EXCLUSIVE_PROCESS that answer and aren't in MIG mode, and says which; an error if there is none,
    /// or if anybody uses one.
    pub(super) fn take(&self) -> anyhow::Result<Vec<CardId>> {
        let nvml = self.open()?;
        let (mut cards, mut sick) = (Vec::new(), Vec::new());
        for index in 0..nvml.device_count().context("nvmlDeviceGetCount")? {
            match uncut(&nvml, index) {
                Ok(card) => cards.extend(card),
                Err(problem) => sick.push(format!("the card at index {index} is left out: {problem:#}")),
            }
        }
        ensure!(!cards.is_empty(), "there is no card that isn't in MIG mode; {}", sick.join("; "));
        for (id, device) in &cards {
            let used = || format!("card {id}: nvmlDeviceGetComputeRunningProcesses");
            let pids: Vec<String> = device
                .running_compute_processes()
                .with_context(used)?
                .iter()
                .map(|process| process.pid.to_string())
                .collect();
            if !pids.is_empty() {
                bail!(
                    "processes {} use card {id} and would get no more of it: end them, or drain the node",
                    pids.join(", ")
                );
            }
        }
        let mut known = self.known()?;
        for (id, device) in &mut cards {
            let mode = device.compute_mode().with_context(|| format!("card {id}: nvmlDeviceGetComputeMode"))?;
            if mode == ComputeMode::ExclusiveProcess {
                continue;
            }
            known.entry(id.clone()).or_insert_with(|| word(mode).to_owned());
            self.remember(&known)?;
            let set = device.set_compute_mode(ComputeMode::ExclusiveProcess);
            set.with_context(|| format!("card {id}: nvmlDeviceSetComputeMode EXCLUSIVE_PROCESS"))?;
        }
        for problem in sick {
            warn!("{problem}");
        }
        Ok(cards.into_iter().map(|(id, _)| id).collect())
    }

    /// Gives the cards back the modes that they had. One that somebody else has changed meanwhile stays as it is.
    pub(super) fn restore(&self) -> anyhow::Result<()> {
        let mut known = self.known()?;
        if known.is_empty() {
            return Ok(());
        }
        let nvml = self.open()?;
        for (id, word) in known.clone() {
            let mode = WORDS.iter().find(|(_, known)| *known == word).map(|(mode, _)| *mode);
            match (nvml.device_by_uuid(id.as_str()), mode) {
                (Ok(mut device), Some(mode)) => {
                    let now = device.compute_mode().with_context(|| format!("card {id}: nvmlDeviceGetComputeMode"))?;
                    if now == ComputeMode::ExclusiveProcess {
                        let set = device.set_compute_mode(mode);
                        set.with_context(|| format!("card {id}: nvmlDeviceSetComputeMode {word}"))?;
                        info!(card = %id, "in compute mode {word} again");
                    }
                }
                (Err(error), _) => warn!(card = %id, "its compute mode can't be set back to {word}: {error}"),
                (Ok(_), None) => warn!(card = %id, "{word:?} in {} is no compute mode", self.file.display()),
            }
            known.remove(&id);
            self.remember(&known)?;
        }
        fs::remove_file(&self.file).with_context(|| format!("removing {}", self.file.display()))
    }

    fn open(&self) -> anyhow::Result<Nvml> {
        let nvml = Nvml::builder().lib_path(self.library.as_os_str()).init();
        nvml.with_context(|| format!("loading NVML from {}", self.library.display()))
    }

    fn known(&self) -> anyhow::Result<Known> {
        match fs::read(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Known::new()),
            text => serde_json::from_slice(&text.with_context(|| format!("reading {}", self.file.display()))?)
                .with_context(|| {
                    format!("{}: remove it if the cards' compute modes don't matter", self.file.display())
                }),
        }
    }

    fn remember(&self, known: &Known) -> anyhow::Result<()> {
        let text = serde_json::to_vec(known)?;
        files::replace(&self.file, text).with_context(|| format!("writing {}", self.file.display()))
    }
}

/// The card at an index, unless it is in MIG mode.
fn uncut(nvml: &Nvml, index: u32) -> anyhow::Result<Option<(CardId, Device<'_>)>> {
    let device = nvml.device_by_index(index).context("nvmlDeviceGetHandleByIndex")?;
    let id: CardId = device.uuid().context("nvmlDeviceGetUUID")?.parse()?;
    Ok(if is_cut(&device).context("nvmlDeviceGetMigMode")? { None } else { Some((id, device)) })
}

fn is_cut(device: &Device<'_>) -> Result<bool, NvmlError> {
    match device.mig_mode() {
        Ok(mode) => Ok(mode.current == sys::NVML_DEVICE_MIG_ENABLE),
        Err(NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

fn word(mode: ComputeMode) -> &'static str {
    WORDS.iter().find(|(known, _)| *known == mode).map_or("DEFAULT", |(_, word)| word)
}

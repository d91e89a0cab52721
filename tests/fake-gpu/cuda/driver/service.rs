//! Clients of CUDA's multi-process service, and cards that only they may open.

use std::path::{Path, PathBuf};
use std::{env, fs};

use fake_card::{EXCLUSIVE_PROCESS, compute_mode};

use super::Device;
use crate::codes::Code;

/// This process as a client of the service: what its environment said at `cuInit`.
#[derive(Debug)]
pub(super) struct Client {
    /// The part of the card's multiprocessors; a kernel takes as much longer.
    percentage: u64,
    /// Bytes of each card, by ordinal.
    limits: Vec<(usize, u64)>,
}

/// What a card's queue and memory know of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OnCard {
    /// The most bytes that this process may have.
    limit: Option<u64>,
    /// Only clients of the service may open the card, and this process is none.
    closed: bool,
}

// === impl Client ===

impl Client {
    /// If there is a control daemon where the environment, or CUDA's default, says; as with the driver, no error if not.
    pub(super) fn connect() -> Option<Self> {
        let pipe = env::var_os("CUDA_MPS_PIPE_DIRECTORY").map_or_else(|| "/tmp/nvidia-mps".into(), PathBuf::from);
        let pid = fs::read_to_string(pipe.join("nvidia-cuda-mps-control.pid")).ok()?.trim().parse().ok()?;
        // SAFETY: signal 0 is none.
        if unsafe { libc::kill(pid, 0) } != 0 {
            return None;
        }
        let percentage = env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").ok().and_then(|text| text.parse().ok());
        let limits = env::var("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT").unwrap_or_default();
        Some(Self {
            percentage: percentage.unwrap_or(100).clamp(1, 100),
            limits: limits.split(',').filter_map(limit).collect(),
        })
    }

    /// How long something takes with this part of the card.
    pub(super) fn stretched(&self, lasts: u64) -> u64 {
        lasts.saturating_mul(100) / self.percentage
    }
}

/// `0=8192M` or `0=8G`: an ordinal and bytes.
fn limit(text: &str) -> Option<(usize, u64)> {
    let (ordinal, amount) = text.trim().split_once('=')?;
    let (digits, shift) =
        [("M", 20), ("G", 30)].iter().find_map(|(unit, shift)| Some((amount.strip_suffix(unit)?, shift)))?;
    Some((ordinal.parse().ok()?, digits.parse::<u64>().ok()? << shift))
}

// === impl OnCard ===

impl OnCard {
    pub(super) fn new(client: Option<&Client>, ordinal: usize, state: &Path, uuid: &str) -> Self {
        let limit = client.and_then(|client| client.limits.iter().find(|(of, _)| *of == ordinal));
        let closed = client.is_none() && compute_mode(state, uuid) == EXCLUSIVE_PROCESS;
        Self { limit: limit.map(|(_, bytes)| *bytes), closed }
    }

    /// What is left to this process under its own limit.
    pub(super) fn room(self, device: &Device) -> u64 {
        self.limit.map_or(u64::MAX, |limit| limit.saturating_sub(device.engine.member.memory()))
    }

    /// A context; the service's server is taken to be on every card that is for one process alone.
    pub(super) fn open(self) -> Result<(), Code> {
        if self.closed { Err(Code::DEVICE_UNAVAILABLE) } else { Ok(()) }
    }
}

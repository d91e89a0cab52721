//! A card's compute mode, which stays when nobody is on the card.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// `NVML_COMPUTEMODE_EXCLUSIVE_PROCESS`: one process at a time; 0: any number.
pub const EXCLUSIVE_PROCESS: u32 = 3;

fn path(directory: &Path, uuid: &str) -> PathBuf {
    directory.join(format!("{uuid}.compute-mode"))
}

/// The mode of the card `uuid`, whose state is in `directory`.
pub fn compute_mode(directory: &Path, uuid: &str) -> u32 {
    let text = fs::read_to_string(path(directory, uuid)).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Puts the card into a mode.
pub fn set_compute_mode(directory: &Path, uuid: &str, mode: u32) -> io::Result<()> {
    fs::write(path(directory, uuid), mode.to_string())
}

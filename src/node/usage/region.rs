//! Accounting region of one container, kept open for as long as the container holds its shares.

use std::io;
use std::path::Path;

use divvy_region::Owner;
use divvy_region::snapshot::Snapshot;
use divvy_runtime::logging::WarnOnce;
use tracing::debug;

use super::processes::PodProcesses;
use super::{Holder, Slots};
use crate::container::region::{Lock, RegionError, RegionReader};

#[cfg(test)]
mod tests;

/// Region of one container, if it has one.
#[derive(Default)]
pub(super) struct ContainerRegion {
    /// The last one that could be read. It stays open if the tenant removes or replaces it, and its processes keep their
    /// mappings of it.
    file: Option<RegionReader>,
    warning: WarnOnce,
}

// === impl ContainerRegion ===

impl ContainerRegion {
    /// Whether the container has a region.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the region and frees the slots of dead processes; `tell` receives the content before and after. Returns the slots in
    /// use; `None` where there is no region, or it can't be read, which is logged once.
    pub(super) fn look(
        &mut self,
        path: &Path,
        holder: &Holder,
        cgroups: &Path,
        buffer: &mut Vec<u8>,
        mut tell: impl FnMut(u64, Snapshot<'_>),
    ) -> Option<Slots> {
        let renewed = self.renew(path, holder.parts.len());
        let looked = self.file.as_ref().map(|file| look(file, holder, cgroups, buffer, &mut tell)).transpose();
        match renewed.and(looked.as_ref().map(drop).map_err(ToString::to_string)) {
            Ok(()) => self.warning.clear(),
            Err(problem) => {
                self.warning.warn(format!("{}: reading its accounting region failed: {problem}", holder.of));
            }
        }
        looked.ok().flatten()
    }

    /// Opens the file at `path`, if it has been replaced by another region.
    fn renew(&mut self, path: &Path, cards: usize) -> Result<(), String> {
        match RegionReader::open(path, cards, self.file.as_ref()) {
            Ok(None) => Ok(()),
            Err(RegionError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(new) => {
                self.file = new;
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

fn look(
    file: &RegionReader,
    holder: &Holder,
    cgroups: &Path,
    buffer: &mut Vec<u8>,
    tell: &mut impl FnMut(u64, Snapshot<'_>),
) -> Result<Slots, RegionError> {
    file.read(buffer)?;
    let snapshot = Snapshot::new(buffer)?;
    tell(file.inode(), snapshot);
    let mut slots = Slots::default();
    let mut suspects = Vec::new();
    for (slot, owner) in snapshot.owners() {
        match file.lock_of(slot)? {
            Lock::Held(pid) => slots.pids.extend(pid),
            Lock::Free => suspects.push((slot, owner)),
        }
        slots.owners.insert((owner.pid, owner.started));
    }
    if reap(file, holder, cgroups, buffer, &suspects, &mut slots)? {
        file.read(buffer)?;
        tell(file.inode(), Snapshot::new(buffer)?);
    }
    Ok(slots)
}

/// Frees the slots of dead processes among `suspects`, whose locks are free. Returns whether there were any.
fn reap(
    file: &RegionReader,
    holder: &Holder,
    cgroups: &Path,
    region: &[u8],
    suspects: &[(usize, Owner)],
    slots: &mut Slots,
) -> Result<bool, RegionError> {
    if suspects.is_empty() {
        return Ok(false);
    }
    // After the region was read: who isn't there now is none of those who have come since.
    let live_processes = PodProcesses::find(cgroups, &holder.of.pod_uid).live_processes();
    let mut any = false;
    for (slot, owner) in suspects.iter().filter(|(_, owner)| live_processes.is_dead(owner)) {
        if file.free(region, *slot)? {
            debug!(container = %holder.of, pid = owner.pid, slot, "freed the slot of a dead process");
            slots.owners.remove(&(owner.pid, owner.started));
            any = true;
        }
    }
    Ok(any)
}

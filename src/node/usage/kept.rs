//! The region of one container, kept open for as long as the container holds its shares.

use std::path::Path;

use divvy_region::Owner;
use divvy_region::snapshot::Snapshot;
use divvy_runtime::logging::WarnOnce;
use tracing::debug;

use super::processes::PodProcesses;
use super::region::{Lock, RegionFile, Unreadable};
use super::{Holder, Seats};

#[cfg(test)]
mod tests;

/// One container's region, where there is one.
#[derive(Default)]
pub(super) struct KeptRegion {
    /// The last one that could be read. A tenant that removes or replaces it by nonsense leaves us that one, and its
    /// processes their maps of it.
    file: Option<RegionFile>,
    warning: WarnOnce,
}

// === impl KeptRegion ===

impl KeptRegion {
    /// Whether there is one.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Reads it, and frees the slots of dead processes: what was read is told before and after. Returns who is in it; `None`
    /// where there is no region, or it can't be read, which is said once.
    pub(super) fn look(
        &mut self,
        path: &Path,
        holder: &Holder,
        cgroups: &Path,
        buffer: &mut Vec<u8>,
        mut tell: impl FnMut(u64, Snapshot<'_>),
    ) -> Option<Seats> {
        let renewed = self.renew(path, holder.parts.len(), buffer);
        let looked = self.file.as_ref().map(|file| look(file, holder, cgroups, buffer, &mut tell)).transpose();
        match renewed.and(looked.as_ref().map(drop).map_err(ToString::to_string)) {
            Ok(()) => self.warning.clear(),
            Err(problem) => self.warning.warn(format!("{}: its region: {problem}", holder.of)),
        }
        looked.ok().flatten()
    }

    /// Takes the file that is at `path` now, if it is another one and a region.
    fn renew(&mut self, path: &Path, cards: usize, buffer: &mut Vec<u8>) -> Result<(), String> {
        let opened = RegionFile::open(path, self.file.as_ref()).map_err(|error| error.to_string())?;
        let Some(new) = opened else { return Ok(()) };
        new.read(cards, buffer).map_err(|problem| problem.to_string())?;
        self.file = Some(new);
        Ok(())
    }
}

fn look(
    file: &RegionFile,
    holder: &Holder,
    cgroups: &Path,
    buffer: &mut Vec<u8>,
    tell: &mut impl FnMut(u64, Snapshot<'_>),
) -> Result<Seats, Unreadable> {
    let cards = holder.parts.len();
    file.read(cards, buffer)?;
    let snapshot = Snapshot::new(buffer)?;
    tell(file.number(), snapshot);
    let (mut seats, mut suspects) = (Seats::default(), Vec::new());
    for (slot, owner) in snapshot.owners() {
        match file.lock_of(slot)? {
            Lock::Held(pid) => seats.pids.extend(pid),
            Lock::Free => suspects.push((slot, owner)),
        }
        seats.owners.insert((owner.pid, owner.started));
    }
    if reap(file, holder, cgroups, buffer, &suspects, &mut seats)? {
        file.read(cards, buffer)?;
        tell(file.number(), Snapshot::new(buffer)?);
    }
    Ok(seats)
}

/// Frees those slots whose processes are dead, of those whose locks are free; whether there were any.
fn reap(
    file: &RegionFile,
    holder: &Holder,
    cgroups: &Path,
    region: &[u8],
    suspects: &[(usize, Owner)],
    seats: &mut Seats,
) -> Result<bool, Unreadable> {
    if suspects.is_empty() {
        return Ok(false);
    }
    // After the region was read: who isn't there now is none of those who have come since.
    let living = PodProcesses::of(cgroups, &holder.of.pod_uid).living();
    let mut any = false;
    for (slot, owner) in suspects.iter().filter(|(_, owner)| living.is_dead(owner)) {
        if file.free(region, *slot)? {
            debug!(container = %holder.of, pid = owner.pid, slot, "a dead process holds nothing any more");
            seats.owners.remove(&(owner.pid, owner.started));
            any = true;
        }
    }
    Ok(any)
}

//! Mounts a file system of a size over the directory that a container writes to.
//!
//! What a tenant writes into its region would otherwise be the node's `/run`: bytes and inodes that containerd and systemd need,
//! too. A mount that the daemon makes is seen by the container runtime only if it propagates to the host, so it is made only
//! below a `runDir` that is a shared mount itself, as the `DaemonSet` has it; elsewhere the directory stays as it is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use divvy_region::layout;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::statvfs;

/// Inodes of a region: its file, the one that replaces it, and some that the tenant may have put aside.
const INODES: u32 = 64;
/// Bytes beside the region and the one that replaces it.
const SLACK: usize = 64 << 10;
/// Name in the table of mounts.
const SOURCE: &str = "divvy-region";

/// Why file systems can't be mounted for regions below `run_dir`, if they can't.
pub(super) fn problem(run_dir: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if !is_shared(&table, run_dir) {
        return Some(format!(
            "runDir {} is not a mount that propagates to the host (mountPropagation: Bidirectional)",
            run_dir.display()
        ));
    }
    let probe = run_dir.join("probe");
    let probed = fs::create_dir_all(&probe).and_then(|()| make(&probe, 1, MsFlags::empty()));
    let unmounted = probed.and_then(|()| Ok(umount2(&probe, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW)?));
    let removed = fs::remove_dir(&probe);
    unmounted.and(removed).err().map(|error| format!("mounting below runDir {}: {error}", run_dir.display()))
}

/// Makes `region` a file system with room for the region of so many cards, unless something is in there: processes may be using
/// it. One that is mounted already stays, and grows where it has less room.
pub(super) fn bound(region: &Path, cards: usize) -> io::Result<()> {
    let above = region.parent().unwrap_or(region);
    let is_mounted = fs::symlink_metadata(region)?.dev() != fs::symlink_metadata(above)?.dev();
    if is_mounted {
        let found = statvfs(region)?;
        if found.f_blocks.saturating_mul(found.f_frsize) < size(cards) as u64 {
            return make(region, cards, MsFlags::MS_REMOUNT);
        }
        return Ok(());
    }
    let is_empty = fs::read_dir(region)?.next().is_none();
    if is_empty { make(region, cards, MsFlags::empty()) } else { Ok(()) }
}

/// Bytes of the file system: a region is replaced by one that is complete, while the old one may be open.
fn size(cards: usize) -> usize {
    2 * layout::size(cards) + SLACK
}

fn make(path: &Path, cards: usize, how: MsFlags) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let options = format!("size={},nr_inodes={INODES},mode=1777", size(cards));
    Ok(mount(Some(SOURCE), path, Some("tmpfs"), flags | how, Some(options.as_str()))?)
}

/// Whether the mount at `path` is shared, and with nobody who hears of it but doesn't answer. `table` is `/proc/PID/mountinfo`.
fn is_shared(table: &str, path: &Path) -> bool {
    let escape = |text: String, (plain, octal)| text.replace(plain, octal);
    let escapes = [("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")];
    let Ok(path) = fs::canonicalize(path) else { return false };
    let path = escapes.into_iter().fold(path.display().to_string(), escape);
    let at_path = |line: &&str| line.split(' ').nth(4) == Some(&*path);
    // The last one covers those before it.
    let Some(line) = table.lines().rfind(at_path) else { return false };
    let has = |kind: &str| line.split(' ').skip(6).take_while(|field| *field != "-").any(|it| it.starts_with(kind));
    has("shared:") && !has("master:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mount_shared_with_the_host_propagates() {
        let table = |fields: &str| {
            format!("22 27 0:21 / /proc rw - proc proc rw\n36 35 0:24 / /tmp rw,nosuid {fields}- tmpfs none rw\n")
        };
        assert!(is_shared(&table("shared:7 "), Path::new("/tmp")));
        for fields in ["", "master:7 ", "shared:7 master:3 ", "propagate_from:2 "] {
            assert!(!is_shared(&table(fields), Path::new("/tmp")), "{fields}");
        }
        assert!(!is_shared(&table("shared:7 "), Path::new("/")));
        assert!(
            !is_shared(&(table("shared:7 ") + "40 36 0:25 / /tmp rw - tmpfs none rw\n"), Path::new("/tmp")),
            "covered"
        );
        assert!(!is_shared("", Path::new("/nowhere")));
    }
}

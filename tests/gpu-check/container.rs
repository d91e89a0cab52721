//! Containers as the daemon prepares them, each a directory with limits, an accounting region and a clock page, and the programs in them.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use divvy_region::layout::{self, LINE};
use divvy_region::snapshot::{Snapshot, Totals};
use nvml_wrapper::Nvml;
use serde_json::json;
use tempfile::TempDir;

use crate::program::{Place, Speed};
use crate::tenant::Tenant;

/// Bytes of the clock page's file.
const PAGE: u64 = 4096;
const CLOCK: &str = "clock";
/// The control daemon of CUDA's multi-process service.
pub(crate) const SERVICE_CONTROL: &str = "nvidia-cuda-mps-control";
/// What stands for it beside the stand-ins of the driver.
const SERVICE_STAND_IN: &str = include_str!("../fake-gpu/mps/nvidia-cuda-mps-control");

/// The machine on which all is tried.
pub(crate) struct Site {
    directory: TempDir,
    library: PathBuf,
    /// Where the stand-in driver is; `None`: the machine's own is used.
    driver: Option<PathBuf>,
    pub(crate) place: Place,
    /// The card's name, once the driver was asked for it.
    pub(crate) uuid: String,
}

/// One container, which holds a part of the card.
pub(crate) struct Container<'a> {
    site: &'a Site,
    root: PathBuf,
    pub(crate) share: Share,
    /// Opened once: closing a descriptor lifts the locks of the process that closes it.
    region: File,
}

/// What the limits file says of the card.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) memory_mib: u64,
    /// Percent.
    pub(crate) cores: u32,
    /// `cap` or `burst`.
    pub(crate) compute: &'static str,
}

// === impl Site ===

impl Site {
    /// With the stand-ins that were built into a directory instead of the machine's driver, if one is given.
    pub(crate) fn new(library: &Path, card: i32, stand_in: Option<&Path>) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("gpu-check-").tempdir()?;
        let driver = stand_in.map(|built| install(built, directory.path())).transpose()?;
        if let Some(driver) = &driver {
            // SAFETY: no other thread has been started.
            unsafe { std::env::set_var("FAKE_CUDA_STATE", driver.join("state")) };
        }
        File::create(directory.path().join(CLOCK))?.set_len(PAGE)?;
        let speed = if driver.is_some() { Speed::Grid } else { Speed::Steps(0.0) };
        let library = library.canonicalize().with_context(|| format!("{}: no library there", library.display()))?;
        Ok(Self { directory, library, driver, place: Place { card, speed }, uuid: String::new() })
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    /// Lookups of functions that the library doesn't know, in all containers so far.
    pub(crate) fn unknown_functions(&self) -> Result<u64> {
        let mut sum = 0;
        for entry in fs::read_dir(self.directory.path())? {
            if let Ok(region) = fs::read(entry?.path().join("region/books")) {
                sum += totals(&Snapshot::new(&region)?)?.unknown;
            }
        }
        Ok(sum)
    }

    /// NVML of the machine, or of the stand-in; `None` if there is none.
    pub(crate) fn nvml(&self) -> Option<Nvml> {
        let name = Path::new("libnvidia-ml.so.1");
        let path = self.driver.as_ref().map_or_else(|| name.to_owned(), |driver| driver.join(name));
        Nvml::builder().lib_path(path.as_os_str()).init().ok()
    }

    /// Some program, held by the library, in the directory of a container.
    pub(crate) fn command_in(&self, program: &Path, root: &Path) -> Command {
        let mut command = self.command(program);
        command.current_dir(root).env("LD_PRELOAD", &self.library);
        command
    }

    pub(crate) fn is_stand_in(&self) -> bool {
        self.driver.is_some()
    }

    /// Where the stand-in driver is, if that is used.
    pub(crate) fn driver(&self) -> Option<&Path> {
        self.driver.as_deref()
    }

    /// The file of the card's clock page, which all containers see.
    pub(crate) fn clock(&self) -> PathBuf {
        self.directory.path().join(CLOCK)
    }

    /// A container by a name that no other has.
    pub(crate) fn container(&self, name: &str, share: Share) -> Result<Container<'_>> {
        let root = self.directory.path().join(name);
        fs::create_dir_all(root.join("limits"))?;
        fs::create_dir_all(root.join("region"))?;
        fs::hard_link(self.clock(), root.join(format!("limits/clock-{}", self.uuid)))?;
        let Share { memory_mib, cores, compute } = share;
        let uuid = &self.uuid;
        let limits = format!(
            "divvy-limits v1\ntier shim\ncompute {compute}\npod 0 gpu-check {name}\ncontainer main\n\
             card {uuid} memory-mib {memory_mib} cores {cores} exclusive 0\nend\n"
        );
        fs::write(root.join("limits/limits"), limits)?;
        let region = File::options().create_new(true).read(true).write(true).open(root.join("region/books"))?;
        region.set_len(layout::size(1) as u64)?;
        region.write_all_at(&layout::header(1, 0)?, 0)?;
        Ok(Container { site: self, root, share, region })
    }

    /// A program that the library knows nothing of.
    pub(crate) fn free_tenant(&self) -> Result<Tenant> {
        Tenant::start(self.command(&std::env::current_exe()?), self.place)
    }

    /// Some program without the library.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.directory.path());
        if let Some(driver) = &self.driver {
            command.env("LD_LIBRARY_PATH", driver);
        }
        command
    }
}

/// The stand-ins for the driver's two libraries, which lie beside each other, with a card of 24 GiB. Of what their files can
/// say see tests/fake-gpu/cuda and tests/fake-gpu/nvml.
fn install(built: &Path, directory: &Path) -> Result<PathBuf> {
    let to = directory.join("driver");
    fs::create_dir(&to)?;
    for (from, name) in [("libfake_cuda.so", "libcuda.so.1"), ("libfake_nvml.so", "libnvidia-ml.so.1")] {
        let from = built.join(from);
        fs::copy(&from, to.join(name)).with_context(|| format!("{}: no stand-in there", from.display()))?;
    }
    let control = to.join(SERVICE_CONTROL);
    fs::write(&control, SERVICE_STAND_IN)?;
    fs::set_permissions(&control, Permissions::from_mode(0o755))?;
    let mut card = json!({
        "uuid": "GPU-00000000-fa4e-4a11-8000-000000000000", "model": "a stand-in for a card",
        "memory_total": 24_u64 << 30, "pci_bus_id": "00000000:17:00.0", "minor": 0,
    });
    fs::write(to.join("scenario.json"), json!({ "cards": [card] }).to_string())?;
    card["context_bytes"] = json!(300 << 20);
    fs::write(to.join("cards.json"), json!({ "cards": [card] }).to_string())?;
    Ok(to)
}

/// All of a region of one card.
pub(crate) fn read_region(region: &File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; layout::size(1)];
    region.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The totals of a region of one card.
pub(crate) fn totals(region: &Snapshot<'_>) -> Result<Totals> {
    region.totals(0).context("a region of one card")
}

// === impl Container ===

impl Container<'_> {
    /// Bytes of the card.
    pub(crate) fn limit(&self) -> u64 {
        self.share.memory_mib << 20
    }

    /// A program in it, held by the library.
    pub(crate) fn tenant(&self) -> Result<Tenant> {
        Tenant::start(self.command(&std::env::current_exe()?), self.site.place)
    }

    /// Starts several at once: a context takes long to make.
    pub(crate) fn tenants(&self, count: usize) -> Result<Vec<Tenant>> {
        let program = std::env::current_exe()?;
        let tenants = (0..count).map(|_| Tenant::launch(self.command(&program), self.site.place));
        let tenants = tenants.collect::<Result<Vec<_>>>()?;
        tenants.iter().try_for_each(|tenant| tenant.hear().map(drop)).context("starting")?;
        Ok(tenants)
    }

    /// Some program in it, held by the library.
    pub(crate) fn command(&self, program: &Path) -> Command {
        self.site.command_in(program, &self.root)
    }

    /// The region, as the daemon reads them.
    pub(crate) fn totals(&self) -> Result<Totals> {
        totals(&Snapshot::new(&read_region(&self.region)?)?)
    }

    /// Bytes that all its processes hold, by its region.
    pub(crate) fn held(&self) -> Result<u64> {
        Ok(self.totals()?.usage.committed)
    }

    /// Bytes that one of its processes holds.
    pub(crate) fn held_by(&self, pid: u32) -> Result<u64> {
        let bytes = read_region(&self.region)?;
        let region = Snapshot::new(&bytes)?;
        let slots = region.owners().filter(|(_, owner)| owner.pid == pid);
        Ok(slots.filter_map(|(slot, _)| region.usage(0, slot)).map(|usage| usage.committed).sum())
    }

    /// The file of its region.
    pub(crate) fn region(&self) -> &File {
        &self.region
    }

    /// Frees the slots of dead processes, as the daemon does. Says how many there were.
    pub(crate) fn reap(&self) -> Result<usize> {
        let bytes = read_region(&self.region)?;
        let region = Snapshot::new(&bytes)?;
        let mut reaped = 0;
        for (slot, owner) in region.owners() {
            if Path::new(&format!("/proc/{}", owner.pid)).exists() || !self.lock(slot, libc::F_WRLCK)? {
                continue;
            }
            for range in region.erasure(slot) {
                self.region.write_all_at(&[0; LINE], range.start as u64)?;
            }
            self.lock(slot, libc::F_UNLCK)?;
            reaped += 1;
        }
        Ok(reaped)
    }

    /// Takes or gives back the lock of a slot; false if another process holds it.
    fn lock(&self, slot: usize, kind: i32) -> Result<bool> {
        use std::os::fd::AsRawFd as _;
        // SAFETY: it is plain numbers, for which zeros will do.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = i16::try_from(kind)?;
        (lock.l_start, lock.l_len) = (i64::try_from(slot)?, 1);
        // SAFETY: a descriptor of ours, and a lock.
        let done = unsafe { libc::fcntl(self.region.as_raw_fd(), libc::F_SETLK, &raw const lock) };
        let error = std::io::Error::last_os_error();
        let is_held = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::PermissionDenied);
        ensure!(done == 0 || is_held, "the lock of slot {slot}: {error}");
        Ok(done == 0)
    }
}

impl Share {
    /// Memory alone: all of the card's time.
    pub(crate) fn of_memory(memory_mib: u64) -> Self {
        Self { memory_mib, cores: 100, compute: "cap" }
    }
}

//! This process: its container's shares, as the limits file says, and its slot of the container's accounting region.

use core::ffi::c_uint;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use divvy_region::clock::Entitlement;
use divvy_region::layout::{CARDS, Region};
use divvy_region::limits::{Cards, Limits};
use divvy_region::{Account, Compute, ComputeLimit, MemoryLimit, Priority, Share, Terms, Tier, overhead};

use crate::cuda::{CUdevice, CUresult, CUuuid, ERROR_NOT_FOUND, ERROR_NOT_PERMITTED, SUCCESS};
use crate::driver::cuda::{cuCtxGetDevice, cuDeviceGetUuid, cuDeviceGetUuid_v2};
use crate::limits::{CardId, Contents, Unread};
use crate::log;
use crate::once::Once;
use crate::sys;
use crate::time;

mod mps;
pub(crate) mod paths;
mod slot;

use slot::RegionSlot;

/// A process that may use cards.
pub(crate) struct Process {
    /// In the order of the limits file, which never changes for a container; only amounts do.
    ids: [Option<CardId>; CARDS],
    shares: [CardShare; CARDS],
    compute: AtomicU8,
    /// Percent of a card's compute that it has at most.
    compute_limit: AtomicU32,
    is_low_priority: AtomicBool,
    slot: RegionSlot,
    /// One more than the card's position, by the driver's ordinal; 0: not looked up, 255: not the container's.
    positions: [AtomicU8; CARDS],
    /// When the limits file was refreshed last, in nanoseconds.
    refreshed_ns: AtomicU64,
    /// The versions of the limits file that is in force and of the overhead file beside it; 0: there is none.
    limits_version: AtomicU64,
    overhead_version: AtomicU64,
}

/// What the daemon's files say of one card, as it is now.
#[derive(Debug, Default)]
struct CardShare {
    /// In bytes, and the part of it that may lie in host memory.
    memory: AtomicU64,
    host: AtomicU64,
    /// Percent.
    cores: AtomicU32,
    /// Bytes that the driver charges the container for what it never asked for, such as modules.
    overhead: AtomicU64,
    /// One more than the overhead when this process was last told what is free; 0: never.
    told: AtomicU64,
}

/// The limit of memory where shares aren't kept by this library.
pub(crate) const UNLIMITED: u64 = u64::MAX;
const NONE_OF_OURS: u8 = 255;
/// How long a change of limits may go unnoticed, ns.
const REFRESH_INTERVAL_NS: u64 = 100_000_000;

static THIS: Once<Option<Process>> = Once::new();
static AFTER_FORK: Once<fn()> = Once::new();

/// This process; an error of CUDA's if its container has no limits that can be read.
#[inline]
pub(crate) fn this() -> Result<&'static Process, CUresult> {
    THIS.get_or_make(Process::begin).as_ref().ok_or(ERROR_NOT_PERMITTED)
}

/// `cuInit`: refused without limits, and with the limits of a client where there is the service.
///
/// # Safety
/// As the driver's.
pub(crate) unsafe fn init(real: unsafe extern "C" fn(c_uint) -> CUresult, flags: c_uint) -> CUresult {
    if let Err(refused) = this() {
        return refused;
    }
    if let Ok(file) = Contents::read(paths::LIMITS)
        && let Ok(limits) = file.limits()
    {
        mps::restore_environment(&limits);
    }
    // SAFETY: the caller's arguments as they came.
    unsafe { real(flags) }
}

/// Has children that fork makes run this too, once they have forgotten their parent's slot.
pub(crate) fn after_fork(run: fn()) {
    AFTER_FORK.get_or_make(|| run);
}

/// This is a child that fork made: it holds nothing.
fn forked() {
    if let Some(Some(process)) = THIS.get() {
        process.slot.forget();
    }
    if let Some(run) = AFTER_FORK.get() {
        run();
    }
}

/// The driver has a revision of a hooked function that isn't known here.
pub(crate) fn count_unknown() {
    if let Ok(process) = this()
        && let Some(card) = process.slot.region().card(0)
    {
        card.unknown.add(1);
    }
}

// === impl Process ===

impl Process {
    fn begin() -> Option<Self> {
        static REFUSED: log::LogOnce = log::LogOnce::new();
        let refused = |why: core::fmt::Arguments<'_>| {
            REFUSED.log(format_args!("{why}: this process may use no GPU; ask the node's administrator (divvy-node)"));
        };
        let file = Contents::read(paths::LIMITS);
        let limits = match file.as_ref().map_err(|error| Unread::Io(*error)).and_then(Contents::limits) {
            Ok(limits) => limits,
            Err(why) => {
                refused(format_args!("{}: {why}", paths::LIMITS.to_str().unwrap_or_default()));
                return None;
            }
        };
        let slot = match RegionSlot::open(limits.cards.clone().count()) {
            Ok(slot) => slot,
            Err(why) => {
                refused(format_args!("{}: {why}", paths::REGION.to_str().unwrap_or_default()));
                return None;
            }
        };
        let mut ids = [None; CARDS];
        ids.iter_mut().zip(limits.cards.clone()).for_each(|(id, card)| *id = Some(CardId::new(card.uuid)));
        let process = Self {
            ids,
            shares: [const {
                CardShare {
                    memory: AtomicU64::new(0),
                    host: AtomicU64::new(0),
                    cores: AtomicU32::new(0),
                    overhead: AtomicU64::new(0),
                    told: AtomicU64::new(0),
                }
            }; CARDS],
            compute: AtomicU8::new(0),
            compute_limit: AtomicU32::new(100),
            is_low_priority: AtomicBool::new(false),
            slot,
            positions: [const { AtomicU8::new(0) }; CARDS],
            refreshed_ns: AtomicU64::new(time::now()),
            limits_version: AtomicU64::new(0),
            overhead_version: AtomicU64::new(0),
        };
        process.apply(&limits);
        process.follow_overhead();
        Some(process)
    }

    fn apply(&self, limits: &Limits<&str, Cards<'_>>) {
        let Terms { tier, compute, compute_limit, priority } = limits.terms;
        self.compute.store(u8::from(compute == Compute::Burst), Ordering::Relaxed);
        self.compute_limit.store(compute_limit.map_or(100, ComputeLimit::percent), Ordering::Relaxed);
        self.is_low_priority.store(priority == Some(Priority::Low), Ordering::Relaxed);
        // The node may have changed to another tier since the library was loaded.
        let is_kept = matches!(tier, Tier::Shim | Tier::Mps);
        for card in limits.cards.clone() {
            if let Some(share) = self.find(&CardId::new(card.uuid)).and_then(|at| self.shares.get(at)) {
                share.memory.store(if is_kept { card.memory_bytes() } else { UNLIMITED }, Ordering::Relaxed);
                share.host.store(if is_kept { card.host_bytes() } else { 0 }, Ordering::Relaxed);
                // A card that nobody else uses is all theirs, whatever their share; what the driver divides needs no care.
                let cores = if tier == Tier::Shim && !card.exclusive { card.cores } else { 100 };
                share.cores.store(cores, Ordering::Relaxed);
            }
        }
    }

    /// Takes over what the daemon has changed, checked once in [`REFRESH_INTERVAL_NS`].
    pub(crate) fn refresh(&self, now_ns: u64) {
        let refreshed_ns = self.refreshed_ns.load(Ordering::Relaxed);
        let is_due = now_ns.saturating_sub(refreshed_ns) >= REFRESH_INTERVAL_NS;
        let is_ours =
            || self.refreshed_ns.compare_exchange(refreshed_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_due || !is_ours() {
            return;
        }
        self.follow_limits();
        self.follow_overhead();
    }

    fn follow_limits(&self) {
        let Ok(version) = sys::version(paths::LIMITS) else { return };
        if version == self.limits_version.load(Ordering::Relaxed) {
            return;
        }
        // One that is broken changes nothing: what was in force stays so.
        let Ok(file) = Contents::read(paths::LIMITS) else { return };
        if let Ok(limits) = file.limits() {
            self.apply(&limits);
            self.limits_version.store(version, Ordering::Relaxed);
        }
    }

    /// Where nothing could be measured, there is no file.
    fn follow_overhead(&self) {
        let version = sys::version(paths::OVERHEAD).unwrap_or(0);
        if version == self.overhead_version.load(Ordering::Relaxed) {
            return;
        }
        let file = Contents::read(paths::OVERHEAD);
        let text = file.as_ref().map_or(Some(""), Contents::text);
        // As above.
        let Some(lines) = text.and_then(overhead::read) else { return };
        for (id, share) in self.ids.iter().zip(&self.shares) {
            let told = lines.clone().find(|(told, _)| id.as_ref().is_some_and(|id| id.as_str() == *told));
            share.overhead.store(told.map_or(0, |(_, bytes)| bytes), Ordering::Relaxed);
        }
        self.overhead_version.store(version, Ordering::Relaxed);
    }

    /// The position of one of the container's cards.
    pub(crate) fn find(&self, id: &CardId) -> Option<usize> {
        self.ids.iter().position(|known| known.as_ref() == Some(id))
    }

    /// Whether a card of the container's is a MIG instance.
    pub(crate) fn has_instances(&self) -> bool {
        self.ids.iter().flatten().any(|id| id.as_str().starts_with("MIG-"))
    }

    /// The position of the card that the driver numbers so; `None` if it isn't the container's.
    pub(crate) fn card_of(&self, device: CUdevice) -> Option<usize> {
        let known = usize::try_from(device).ok().and_then(|device| self.positions.get(device))?;
        match known.load(Ordering::Relaxed) {
            0 => {
                // A driver that can't say so yet is asked again.
                let found = self.look_up(device).ok()?;
                known.store(found.map_or(NONE_OF_OURS, |card| card as u8 + 1), Ordering::Relaxed);
                found
            }
            NONE_OF_OURS => None,
            position => Some(usize::from(position) - 1),
        }
    }

    /// The position of the card of the calling thread's context.
    pub(crate) fn current_card(&self) -> Result<usize, CUresult> {
        let mut device: CUdevice = 0;
        // SAFETY: a device is written to a device.
        match unsafe { cuCtxGetDevice(&raw mut device) } {
            SUCCESS => self.card_of(device).ok_or(ERROR_NOT_PERMITTED),
            error => Err(error),
        }
    }

    fn look_up(&self, device: CUdevice) -> Result<Option<usize>, CUresult> {
        let mut uuid = CUuuid::default();
        // SAFETY: a UUID is written to a UUID. Of a MIG instance only the second tells the instance's.
        let result = unsafe {
            match cuDeviceGetUuid_v2(&raw mut uuid, device) {
                ERROR_NOT_FOUND => cuDeviceGetUuid(&raw mut uuid, device),
                result => result,
            }
        };
        let spelled = |prefix| self.find(&CardId::of_bytes(prefix, uuid.0));
        if result == SUCCESS { Ok(spelled("GPU-").or_else(|| spelled("MIG-"))) } else { Err(result) }
    }

    /// The UUID of one of the container's cards.
    pub(crate) fn id(&self, card: usize) -> Option<CardId> {
        self.ids.get(card).copied().flatten()
    }

    /// Whether all cards are the container's whole, so that launches are not paced.
    pub(crate) fn has_whole_cards(&self) -> bool {
        let cards = self.ids.iter().take_while(|id| id.is_some()).count();
        (0..cards).all(|card| self.share(card).is_whole())
    }

    /// Bytes that the container may have of a card, or [`UNLIMITED`].
    pub(crate) fn limit(&self, card: usize) -> u64 {
        self.shares.get(card).map_or(0, |share| share.memory.load(Ordering::Relaxed))
    }

    /// Whether part of the limit may lie in host memory, as managed memory.
    pub(crate) fn is_oversubscribed(&self, card: usize) -> bool {
        self.shares.get(card).is_some_and(|share| share.host.load(Ordering::Relaxed) > 0)
    }

    /// The part of the limit that is left for what the accounting region counts. What this process was told is free isn't
    /// taken back for overhead that was measured since: programs allocate by what they were told. But overhead lies on the
    /// card, and so takes part of what may lie there.
    pub(crate) fn allocatable(&self, card: usize) -> MemoryLimit {
        let Some(share) = self.shares.get(card) else { return MemoryLimit::all_physical(0) };
        let limit = match self.limit(card) {
            UNLIMITED => return MemoryLimit::all_physical(UNLIMITED),
            limit => limit,
        };
        let overhead = self.overhead(card);
        let total = limit.saturating_sub(overhead.min(share.told.load(Ordering::Relaxed).wrapping_sub(1)));
        match share.host.load(Ordering::Relaxed) {
            0 => MemoryLimit::all_physical(total),
            host => MemoryLimit { total, physical: limit.saturating_sub(host).saturating_sub(overhead) },
        }
    }

    /// Notes that this process is told what is free of a card, and how much that is of its limit.
    pub(crate) fn tell_free(&self, card: usize) -> u64 {
        if let Some(share) = self.shares.get(card) {
            share.told.store(self.overhead(card) + 1, Ordering::Relaxed);
        }
        self.limit(card).saturating_sub(self.used(card))
    }

    fn overhead(&self, card: usize) -> u64 {
        self.shares.get(card).map_or(0, |share| share.overhead.load(Ordering::Relaxed))
    }

    /// The container's guaranteed part of the card's time; 0 if it has none.
    pub(crate) fn share(&self, card: usize) -> Share {
        Share::from_parts(
            self.shares.get(card).map_or(0, |share| share.cores.load(Ordering::Relaxed)).saturating_mul(100),
        )
    }

    /// The guaranteed share, and what the container may have beyond that.
    pub(crate) fn entitlement(&self, card: usize) -> Entitlement {
        let compute = if self.compute.load(Ordering::Relaxed) == 0 { Compute::Cap } else { Compute::Burst };
        let priority = self.is_low_priority.load(Ordering::Relaxed).then_some(Priority::Low);
        let limit = Share::from_parts(self.compute_limit.load(Ordering::Relaxed).saturating_mul(100));
        Entitlement { share: self.share(card), compute, limit, priority }
    }

    /// Bytes that all processes of the container take of a card: what they hold, and what the driver charges beyond that.
    pub(crate) fn used(&self, card: usize) -> u64 {
        self.slot.region().accounts(card).map_or(0, |accounts| accounts.used()).saturating_add(self.overhead(card))
    }

    /// What this process holds of a card; `None` if the container has more processes than can be counted.
    pub(crate) fn account(&'static self, card: usize) -> Option<Account<'static>> {
        self.slot.account(card)
    }

    /// The container's accounting region.
    pub(crate) fn region(&self) -> Region<'static> {
        self.slot.region()
    }

    /// Frees what dead processes of the container held.
    pub(crate) fn reap(&self) -> usize {
        self.slot.reap()
    }
}

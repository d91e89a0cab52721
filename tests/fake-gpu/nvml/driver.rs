//! The library's state: the scenario as last read, who has initialised, the handles that were given out.

pub(crate) mod events;
mod source;

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::functions::FUNCTIONS;
use crate::scenario::{Call, CardScenario, CardState, InstanceScenario, NvmlReturn, Scenario};
use events::EventSet;
use source::Source;
pub(crate) use source::path as scenario_path;

/// How often a blocked call looks whether it still should block, and a waiting one whether there is an event.
const POLL: Duration = Duration::from_millis(50);

/// Handles are numbers that look like no pointer and no other library's handle.
const FIRST_HANDLE: usize = 0x4e56_4d4c_0000;

pub(crate) struct Driver {
    source: Source,
    /// `nvmlInit` calls without their `nvmlShutdown`.
    users: u32,
    /// [`Scenario::driver_load`] at the first of them.
    initialised_under: u64,
    /// UUIDs by handle, of cards and instances.
    handles: Vec<String>,
    sets: BTreeMap<usize, EventSet>,
    next_set: usize,
}

/// What a handle stands for.
#[derive(Clone, Copy)]
pub(crate) struct Target<'s> {
    pub(crate) card: &'s CardScenario,
    /// `None`: the whole card.
    pub(crate) instance: Option<&'s InstanceScenario>,
}

/// What a search has found.
pub(crate) struct Found {
    pub(crate) uuid: String,
    /// The state of the card.
    pub(crate) state: CardState,
}

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(|| Mutex::new(Driver::new()));

/// The state with the scenario of this moment.
fn now() -> MutexGuard<'static, Driver> {
    let mut driver = DRIVER.lock().unwrap_or_else(PoisonError::into_inner);
    driver.source.refresh();
    driver
}

/// Enters a function: hangs or fails as the scenario says. `card` is the UUID that the call is about.
fn enter(function: &str, card: Option<&str>) -> Result<MutexGuard<'static, Driver>, NvmlReturn> {
    debug_assert!(FUNCTIONS.contains(&function), "{function} is missing in the list of functions");
    let since = Instant::now();
    loop {
        let driver = now();
        let hang = driver.source.scenario.as_ref().and_then(|scenario| fault(&scenario.hangs, function, card));
        if hang.is_none_or(|hang| since.elapsed() >= Duration::from_millis(hang)) {
            return match driver.source.scenario.as_ref().and_then(|scenario| fault(&scenario.errors, function, card)) {
                Some(error) => Err(error),
                None => Ok(driver),
            };
        }
        drop(driver);
        thread::sleep(POLL);
    }
}

fn fault<F: Copy>(faults: &BTreeMap<Call, F>, function: &str, card: Option<&str>) -> Option<F> {
    if faults.is_empty() {
        return None;
    }
    let about = card.and_then(|card| faults.get(&Call::about(function, card)));
    about.or_else(|| faults.get(&Call::any(function))).copied()
}

/// `nvmlInit`.
pub(crate) fn init(function: &str) -> Result<(), NvmlReturn> {
    let mut driver = enter(function, None)?;
    let load = driver.loaded()?.driver_load;
    if driver.users == 0 {
        driver.initialised_under = load;
    }
    driver.users += 1;
    Ok(())
}

/// `nvmlShutdown`; the last user takes the event sets with it.
pub(crate) fn shutdown(function: &str) -> Result<(), NvmlReturn> {
    let mut driver = enter(function, None)?;
    driver.users = driver.users.checked_sub(1).ok_or(NvmlReturn::Uninitialized)?;
    if driver.users == 0 {
        driver.sets.clear();
    }
    Ok(())
}

/// A function that is about no card.
pub(crate) fn global<T>(
    function: &str,
    body: impl FnOnce(&mut Driver) -> Result<T, NvmlReturn>,
) -> Result<T, NvmlReturn> {
    let mut driver = enter(function, None)?;
    driver.session()?;
    body(&mut driver)
}

/// A function about the card behind a handle.
pub(crate) fn about_handle<T>(
    function: &str,
    handle: usize,
    body: impl FnOnce(&Driver, &CardScenario) -> Result<T, NvmlReturn>,
) -> Result<T, NvmlReturn> {
    let uuid = now().uuid(handle)?.to_owned();
    let driver = enter(function, Some(&uuid))?;
    body(&driver, driver.card(handle)?)
}

/// A function about a card or an instance.
pub(crate) fn about_target<T>(
    function: &str,
    handle: usize,
    body: impl FnOnce(Target<'_>) -> Result<T, NvmlReturn>,
) -> Result<T, NvmlReturn> {
    let uuid = now().uuid(handle)?.to_owned();
    let driver = enter(function, Some(&uuid))?;
    body(driver.target(handle)?)
}

/// A function that gives out the handle of something near a card or an instance, by its UUID.
pub(crate) fn find_relative(
    function: &str,
    handle: usize,
    choose: impl FnOnce(Target<'_>) -> Result<String, NvmlReturn>,
) -> Result<usize, NvmlReturn> {
    let uuid = now().uuid(handle)?.to_owned();
    let mut driver = enter(function, Some(&uuid))?;
    let relative = choose(driver.target(handle)?)?;
    Ok(driver.handle(&relative))
}

/// A function that finds a card or an instance and gives out its handle.
pub(crate) fn find(
    function: &str,
    choose: impl Fn(&Scenario) -> Option<Found>,
    otherwise: NvmlReturn,
) -> Result<usize, NvmlReturn> {
    let uuid = now().source.scenario.as_ref().and_then(&choose).map(|found| found.uuid);
    let mut driver = enter(function, uuid.as_deref())?;
    let chosen = choose(driver.session()?).ok_or(otherwise)?;
    if chosen.state == CardState::Lost {
        return Err(NvmlReturn::GpuIsLost);
    }
    Ok(driver.handle(&chosen.uuid))
}

// === impl Driver ===

impl Driver {
    fn new() -> Self {
        Self {
            source: Source::new(),
            users: 0,
            initialised_under: 0,
            handles: Vec::new(),
            sets: BTreeMap::new(),
            next_set: 1,
        }
    }

    fn loaded(&self) -> Result<&Scenario, NvmlReturn> {
        let scenario = self.source.scenario.as_ref();
        scenario.filter(|scenario| scenario.driver_loaded).ok_or(NvmlReturn::DriverNotLoaded)
    }

    /// The scenario, for a caller that has initialised since the driver was loaded.
    pub(crate) fn session(&self) -> Result<&Scenario, NvmlReturn> {
        let scenario = self.loaded().map_err(|_gone| NvmlReturn::Uninitialized)?;
        let valid = self.users > 0 && self.initialised_under == scenario.driver_load;
        if valid { Ok(scenario) } else { Err(NvmlReturn::Uninitialized) }
    }

    /// The UUID behind a handle; also of a card that is no longer there.
    fn uuid(&self, handle: usize) -> Result<&str, NvmlReturn> {
        let position = handle.checked_sub(FIRST_HANDLE).ok_or(NvmlReturn::InvalidArgument)?;
        self.handles.get(position).map(String::as_str).ok_or(NvmlReturn::InvalidArgument)
    }

    /// The card behind a handle, if it answers and isn't just an instance.
    pub(crate) fn card(&self, handle: usize) -> Result<&CardScenario, NvmlReturn> {
        self.target(handle)?.whole_card()
    }

    /// What is behind a handle, if its card answers. The handle of an instance that was destroyed is invalid.
    fn target(&self, handle: usize) -> Result<Target<'_>, NvmlReturn> {
        let uuid = self.uuid(handle)?;
        let target = self.session()?.cards.iter().find_map(|card| {
            let instance = card.instance(uuid);
            (instance.is_some() || card.uuid == uuid).then_some(Target { card, instance })
        });
        let target = target.ok_or(NvmlReturn::InvalidArgument)?;
        if target.card.state == CardState::Present { Ok(target) } else { Err(NvmlReturn::GpuIsLost) }
    }

    fn handle(&mut self, uuid: &str) -> usize {
        let position = self.handles.iter().position(|known| known == uuid).unwrap_or_else(|| {
            self.handles.push(uuid.to_owned());
            self.handles.len() - 1
        });
        FIRST_HANDLE + position
    }
}

// === impl Target ===

impl<'s> Target<'s> {
    /// The card, for a function that is none of an instance's.
    pub(crate) fn whole_card(self) -> Result<&'s CardScenario, NvmlReturn> {
        if self.instance.is_none() { Ok(self.card) } else { Err(NvmlReturn::NotSupported) }
    }
}

// === impl Found ===

impl Found {
    pub(crate) fn card(card: &CardScenario) -> Self {
        Self { uuid: card.uuid.clone(), state: card.state }
    }
}

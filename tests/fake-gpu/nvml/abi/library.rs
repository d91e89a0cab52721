//! Functions that are about no card, or that find one.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::time::Duration;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeXidCriticalError, nvmlReturn_enum_NVML_SUCCESS,
    nvmlReturn_t,
};

use super::{code, write};
use crate::driver::{self, Found, events};
use crate::scenario::{CardScenario, NvmlReturn, Scenario, parse_pci_bus_id};

/// Defines C functions; the body knows the function's name as `$me`.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) = |$me:ident| $body:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> nvmlReturn_t {
                let $me = stringify!($name);
                code($body)
            }
        )*
    };
}

functions! {
    nvmlInit_v2() = |me| driver::init(me);
    nvmlInitWithFlags(_flags: c_uint) = |me| driver::init(me);
    nvmlShutdown() = |me| driver::shutdown(me);
    nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) = |me| driver::global(me, |driver| {
        // SAFETY: NVML's contract for buffers.
        unsafe { write::text(version, length, &driver.session()?.driver_version) }
    });
    nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) = |me| driver::global(me, |driver| {
        let scenario = driver.session()?;
        let text = format!("{}.{}", scenario.cuda_version / 1000, scenario.driver_version);
        // SAFETY: NVML's contract for buffers.
        unsafe { write::text(version, length, &text) }
    });
    nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) = |me| driver::global(me, |driver| {
        // SAFETY: NVML's contract for results.
        unsafe { write::value(version, driver.session()?.cuda_version) }
    });
    nvmlDeviceGetCount_v2(count: *mut c_uint) = |me| driver::global(me, |driver| {
        let cards = c_uint::try_from(driver.session()?.enumerated().count()).map_err(|_many| NvmlReturn::Unknown)?;
        // SAFETY: NVML's contract for results.
        unsafe { write::value(count, cards) }
    });
    nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) = |me| {
        let choose = |scenario: &Scenario| Some(Found::card(scenario.enumerated().nth(index as usize)?));
        let found = driver::find(me, choose, NvmlReturn::InvalidArgument);
        // SAFETY: NVML's contract for results.
        found.and_then(|handle| unsafe { write::value(device, handle as nvmlDevice_t) })
    };
    nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) = |me| {
        // SAFETY: NVML's contract for texts.
        unsafe { find_by_text(me, uuid, device, by_uuid) }
    };
    nvmlDeviceGetHandleByPciBusId_v2(bus_id: *const c_char, device: *mut nvmlDevice_t) = |me| {
        let same = |card: &CardScenario, bus_id: &str| {
            (card.pci_address() == parse_pci_bus_id(bus_id)).then(|| Found::card(card))
        };
        // SAFETY: NVML's contract for texts.
        unsafe { find_by_text(me, bus_id, device, same) }
    };
    nvmlEventSetCreate(set: *mut nvmlEventSet_t) = |me| {
        // SAFETY: NVML's contract for results.
        events::create(me).and_then(|made| unsafe { write::value(set, made as nvmlEventSet_t) })
    };
    nvmlEventSetWait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeout: c_uint) = |me| {
        // SAFETY: NVML's contract for results.
        unsafe { wait(me, set, data, timeout) }
    };
    nvmlEventSetWait_v2(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeout: c_uint) = |me| {
        // SAFETY: NVML's contract for results.
        unsafe { wait(me, set, data, timeout) }
    };
    nvmlEventSetFree(set: nvmlEventSet_t) = |me| events::free(me, set.addr());
}

/// The card of this UUID, or the instance on it.
fn by_uuid(card: &CardScenario, uuid: &str) -> Option<Found> {
    (card.uuid == uuid || card.instance(uuid).is_some()).then(|| Found { state: card.state, uuid: uuid.to_owned() })
}

/// Finds a card that isn't gone, or what is on it.
///
/// # Safety
/// `text` is null or a C string, `device` null or valid for writes.
unsafe fn find_by_text(
    function: &str,
    text: *const c_char,
    device: *mut nvmlDevice_t,
    find: impl Fn(&CardScenario, &str) -> Option<Found>,
) -> Result<(), NvmlReturn> {
    if text.is_null() {
        return Err(NvmlReturn::InvalidArgument);
    }
    // SAFETY: not null, so a C string.
    let text = unsafe { CStr::from_ptr(text) }.to_str().map_err(|_garbage| NvmlReturn::InvalidArgument)?;
    let choose = |scenario: &Scenario| scenario.enumerated().find_map(|card| find(card, text));
    let handle = driver::find(function, choose, NvmlReturn::NotFound)?;
    // SAFETY: null or valid for writes.
    unsafe { write::value(device, handle as nvmlDevice_t) }
}

/// # Safety
/// `data` is null or valid for writes.
unsafe fn wait(
    function: &str,
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    timeout: c_uint,
) -> Result<(), NvmlReturn> {
    let event = events::wait(function, set.addr(), Duration::from_millis(timeout.into()))?;
    let event = nvmlEventData_t {
        device: event.handle as nvmlDevice_t,
        eventType: nvmlEventTypeXidCriticalError.into(),
        eventData: event.xid as c_ulonglong,
        gpuInstanceId: event.gi.unwrap_or(c_uint::MAX),
        computeInstanceId: event.ci.unwrap_or(c_uint::MAX),
    };
    // SAFETY: null or valid for writes.
    unsafe { write::value(data, event) }
}

/// Never fails, whatever the driver does.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let error = NvmlReturn::ALL.iter().find(|error| **error as nvmlReturn_t == result);
    let success = if result == nvmlReturn_enum_NVML_SUCCESS { c"Success" } else { c"Unknown Error" };
    error.map_or(success, |error| error.text()).as_ptr()
}

//! `cuInit`.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{env, fs};

use fake_card::{Card, Member, own_path};

use super::engine::Engine;
use super::graph_memory::GraphMemory;
use super::memory::Memory;
use super::pool::Pool;
use super::service::{Client, OnCard};
use super::table::Table;
use super::vmm::Virtual;
use super::{DRIVER, Device, Driver, FORKED, Primary, ticker};
use crate::codes::Code;
use crate::machine::{CardDescription, Machine};

static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();

/// The machine, read once. A malformed one is reported on standard error, and there is none.
pub(crate) fn machine(is_known: fn(&str) -> bool) -> Option<&'static Machine> {
    let read = || {
        let path = named("FAKE_CUDA_CARDS", "cards.json")?;
        let machine = Machine::read(&path, is_known);
        machine.map_err(|error| eprintln!("fake-cuda: {}: {error}", path.display())).ok()
    };
    MACHINE.get_or_init(read).as_ref()
}

/// What the environment names, or else what lies beside the library.
fn named(variable: &str, beside: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).or_else(|| Some(own_path()?.with_file_name(beside)))
}

/// Makes the process's driver, unless it is made already.
pub(crate) fn initialise(is_known: fn(&str) -> bool) -> Result<(), Code> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if FORKED.load(Relaxed) {
        return Err(Code::NOT_INITIALIZED);
    }
    if DRIVER.get().is_some() {
        return Ok(());
    }
    let machine = machine(is_known).ok_or(Code::NO_DEVICE)?;
    let visible = visible(machine, env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
    if visible.is_empty() {
        return Err(Code::NO_DEVICE);
    }
    stay();
    let driver = Driver::new(machine, visible)?;
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    // Nobody else stores: the lock above is held.
    DRIVER.get_or_init(|| Mutex::new(driver));
    Ok(())
}

/// Keeps the library loaded when the program closes it: its thread runs on.
fn stay() {
    let path = own_path().and_then(|path| CString::new(path.into_os_string().into_vec()).ok());
    if let Some(path) = path {
        // SAFETY: the path is a C string, and the library is loaded already.
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
    }
}

unsafe extern "C" fn forked() {
    FORKED.store(true, Relaxed);
}

/// The cards that the program sees, in its order. As in CUDA a name is an ordinal or the beginning of a UUID, and the list
/// ends at the first that is none, or names a card again.
fn visible<'m>(machine: &'m Machine, names: Option<&str>) -> Vec<&'m CardDescription> {
    let Some(names) = names else { return machine.cards.iter().collect() };
    let mut seen: Vec<&CardDescription> = Vec::new();
    for name in names.split(',').map(str::trim) {
        let found = match name.parse::<usize>() {
            Ok(ordinal) => machine.cards.get(ordinal),
            Err(_) => machine.cards.iter().find(|card| !name.is_empty() && card.uuid.starts_with(name)),
        };
        match found {
            Some(card) if seen.iter().all(|seen| seen.uuid != card.uuid) => seen.push(card),
            _ => break,
        }
    }
    seen
}

fn complain<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> Code {
    move |error| {
        eprintln!("fake-cuda: {what}: {error}");
        Code::OPERATING_SYSTEM
    }
}

// === impl Driver ===

impl Driver {
    fn new(machine: &'static Machine, visible: Vec<&'static CardDescription>) -> Result<Self, Code> {
        let state = named("FAKE_CUDA_STATE", "state").ok_or(Code::OPERATING_SYSTEM)?;
        fs::create_dir_all(&state).map_err(complain("making the directory of the state"))?;
        let total = visible.iter().fold(0, |total: u64, card| total.saturating_add(card.memory_total));
        let slice = Duration::from_micros(machine.slice_us);
        let cards = visible.iter().map(|card| Card::create(&state, &card.uuid, slice)).collect::<Result<Vec<_>, _>>();
        let cards = cards.map_err(complain("opening the state of a card"))?;
        let members = ticker::start(cards).map_err(complain("starting the thread"))?;
        let members = members.into_iter().collect::<Option<Vec<_>>>().ok_or(Code::SYSTEM_NOT_READY)?;
        let client = Client::connect().map(Arc::new);
        if client.is_some() {
            members.iter().for_each(Member::become_client);
        }
        let mut pools = Table::new(9);
        let devices = visible.into_iter().zip(members).enumerate().map(|(index, (card, member))| {
            let default_pool = pools.add(Pool::new(index));
            Device {
                card,
                service: OnCard::new(client.as_deref(), index, &state, &card.uuid),
                engine: Engine::new(member, client.clone()),
                primary: Primary::default(),
                default_pool,
                pool: default_pool,
                graph_memory: GraphMemory::default(),
            }
        });
        Ok(Self {
            machine,
            devices: devices.collect(),
            memory: Memory::new(state, total).map_err(complain("reserving addresses"))?,
            virtual_memory: Virtual::new(),
            contexts: Table::new(1),
            streams: Table::new(2),
            events: Table::new(3),
            modules: Table::new(4),
            functions: Table::new(5),
            graphs: Table::new(6),
            nodes: Table::new(7),
            execs: Table::new(8),
            pools,
            arrays: Table::new(10),
            captures: BTreeMap::new(),
            meetings: BTreeMap::new(),
            next_id: 0,
            dozing: false,
        })
    }
}

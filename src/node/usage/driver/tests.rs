use super::super::fixture::{card, holder};
use super::*;
use divvy_api::{Card, Health, Links};
use divvy_node_core::inventory::{CardProcess, DeviceInfo};

/// Two pods: `a` with two containers, of which one has a slot, and `b` with one. Processes 10 and 11 share a cgroup.
struct Town {
    holders: Vec<Holder>,
    slots: Vec<Option<Slots>>,
    pods: HashMap<String, PodProcesses>,
    supervisor: Option<u32>,
    is_incomplete: bool,
}

impl Town {
    fn new() -> Self {
        let mut side = holder("a", true);
        side.of.container = "side".to_owned();
        side.parts[0].0 = card(1);
        let slots = Slots { pids: [10].into(), owners: [(1, 100), (2, 200)].into() };
        let pod = |pids: &[(u32, usize)]| PodProcesses {
            pids: pids.iter().copied().collect(),
            is_there: true,
            is_whole: true,
            has_hidden_processes: false,
        };
        let a = pod(&[(10, 1), (11, 1), (12, 2), (13, 3)]);
        Self {
            holders: vec![holder("a", true), side, holder("b", false)],
            slots: vec![Some(slots), None, None],
            pods: [("uid-a".to_owned(), a), ("uid-b".to_owned(), pod(&[(20, 1)]))].into(),
            supervisor: None,
            is_incomplete: false,
        }
    }

    fn owner_of(&self, number: u8, pid: u32) -> ProcessOwner {
        let Self { holders, slots, pods, supervisor, is_incomplete } = self;
        let owners = ProcessOwners { holders, slots, pods, supervisor: *supervisor, is_incomplete: *is_incomplete };
        owners.owner_of(&card(number), pid, |pid| (pid == 12).then_some((2, 200)))
    }
}

fn of(at: usize, has_slot: bool) -> ProcessOwner {
    ProcessOwner::Holder { at, has_slot }
}

#[test]
fn process_owner_by_lock_slot_cgroup_or_sole_container() {
    let mut town = Town::new();
    assert_eq!(town.owner_of(0, 10), of(0, true), "its lock");
    assert_eq!(town.owner_of(1, 12), of(0, true), "its slot, whose lock it has lost");
    assert_eq!(town.owner_of(1, 11), of(0, false), "beside 10");
    assert_eq!(town.owner_of(1, 13), of(1, false), "the only one with this card");
    assert_eq!(town.owner_of(1, 20), of(2, false), "the only one of its pod");
    assert_eq!(town.owner_of(0, 99), ProcessOwner::Nobody);
    town.is_incomplete = true;
    assert_eq!(town.owner_of(0, 99), ProcessOwner::Unknown);
    town.holders[1].parts[0].0 = card(0);
    assert_eq!(town.owner_of(0, 13), ProcessOwner::Pod("uid-a".to_owned()), "either");
}

/// This test is taken for a server, and what has started it for the control daemon.
#[test]
fn mps_server_is_identified_by_its_parent() {
    let (server, control) = (std::process::id(), std::os::unix::process::parent_id());
    let mut town = Town::new();
    assert_eq!(town.owner_of(0, server), ProcessOwner::Nobody);
    town.supervisor = Some(control);
    assert_eq!(town.owner_of(0, server), ProcessOwner::Service);
    assert_eq!(town.owner_of(0, 10), of(0, true), "a client is its container's");
    town.supervisor = Some(server);
    assert_eq!(town.owner_of(0, server), ProcessOwner::Nobody, "another's");
    let above = std::fs::read_to_string(format!("/proc/{control}/stat")).ok().and_then(|stat| processes::parent(&stat));
    town.supervisor = above.filter(|above| *above > 0);
    let owner_of = if town.supervisor.is_some() { ProcessOwner::Service } else { ProcessOwner::Nobody };
    assert_eq!(town.owner_of(0, server), owner_of, "the supervisor is above the control daemon");
}

fn inventory(processes: Option<Vec<CardProcess>>, health: Health) -> Arc<Inventory> {
    let card = Card { health, ..Card::healthy(card(0), divvy_api::Memory::mib(1000)) };
    Arc::new(Inventory::new([(card, DeviceInfo { processes, ..DeviceInfo::default() })], Links::default()))
}

/// What pod `a`'s one container uses of card 0, with a cgroup that says so.
fn measured(procs: &str, inventory: &Arc<Inventory>) -> (Option<u64>, Option<String>) {
    let root = tempfile::tempdir().expect("a directory");
    let cgroup = root.path().join("kubepods/poduid-a");
    std::fs::create_dir_all(&cgroup).expect("a directory");
    std::fs::write(cgroup.join("cgroup.procs"), procs).expect("a file");
    let mut holders = [holder("a", false)];
    let measured =
        DriverProcesses::default().measure(inventory, None, &mut holders, &[None], root.path(), Instant::now());
    (measured.bytes(0, &holders[0], &card(0)), measured.problem)
}

#[test]
fn incomplete_process_list_is_not_reported() {
    let process = |pid, bytes| CardProcess { pid, bytes };
    let known =
        |bytes| inventory(Some(vec![process(10, Some(5)), process(11, bytes), process(99, Some(50))]), Health::Healthy);
    assert_eq!(measured("10\n11\n", &known(Some(7))), (Some(12), None));
    assert_eq!(measured("10\n", &known(Some(7))), (Some(5), None));
    assert_eq!(measured("10\n11\n", &known(None)), (None, None), "NVML doesn't say how much");
    let hidden = "processes of pods are outside the daemon's PID namespace; set hostPID";
    assert_eq!(measured("10\n0\n", &known(Some(7))), (None, Some(hidden.to_owned())));
    assert_eq!(measured("", &inventory(Some(vec![]), Health::Healthy)), (Some(0), None));
    let problem = Some("NVML doesn't report the processes of any GPU".to_owned());
    assert_eq!(measured("10\n", &inventory(None, Health::Healthy)), (None, problem.clone()));
    let sick = Health::unhealthy("XID 79");
    assert_eq!(measured("10\n", &inventory(Some(vec![process(10, Some(5))]), sick)), (None, problem));
}

#[test]
fn pod_processes_are_cached_until_change_or_timeout() {
    let root = tempfile::tempdir().expect("a directory");
    let procs = root.path().join("kubepods/poduid-a/cgroup.procs");
    std::fs::create_dir_all(procs.parent().expect("a directory")).expect("a directory");
    let process = CardProcess { pid: 10, bytes: Some(5) };
    let (first, second) =
        (inventory(Some(vec![process]), Health::Healthy), inventory(Some(vec![process]), Health::Healthy));
    let (mut driver, mut holders, start) = (DriverProcesses::default(), [holder("a", false)], Instant::now());
    let mut look = |pids: &str, inventory: &Arc<Inventory>, seconds| {
        std::fs::write(&procs, pids).expect("a file");
        let measured =
            driver.measure(inventory, None, &mut holders, &[None], root.path(), start + Duration::from_secs(seconds));
        measured.cards[&card(0)][0].owner == of(0, false)
    };
    assert!(!look("", &first, 0));
    assert!(!look("10\n", &first, 1), "nothing has changed");
    assert!(look("10\n", &second, 1), "NVML has shown something new");
    assert!(look("", &second, 5));
    assert!(!look("", &second, 6));
}

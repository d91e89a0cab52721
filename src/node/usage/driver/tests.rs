use super::super::fixture::{card, holder};
use super::*;
use divvy_node_core::inventory::{CardHealth, CardInfo, CardProcess};

/// Two pods: `a` with two containers, of which one has a slot, and `b` with one. Processes 10 and 11 share a cgroup.
struct Town {
    holders: Vec<Holder>,
    seats: Vec<Option<Seats>>,
    pods: HashMap<String, PodProcesses>,
    supervisor: Option<u32>,
    is_blind: bool,
}

impl Town {
    fn new() -> Self {
        let mut side = holder("a", true);
        side.of.container = "side".to_owned();
        side.parts[0].0 = card(1);
        let seats = Seats { pids: [10].into(), owners: [(1, 100), (2, 200)].into() };
        let pod = |pids: &[(u32, usize)]| PodProcesses {
            pids: pids.iter().copied().collect(),
            is_there: true,
            is_whole: true,
            has_strangers: false,
        };
        let a = pod(&[(10, 1), (11, 1), (12, 2), (13, 3)]);
        Self {
            holders: vec![holder("a", true), side, holder("b", false)],
            seats: vec![Some(seats), None, None],
            pods: [("uid-a".to_owned(), a), ("uid-b".to_owned(), pod(&[(20, 1)]))].into(),
            supervisor: None,
            is_blind: false,
        }
    }

    fn whose(&self, number: u8, pid: u32) -> Whose {
        let Self { holders, seats, pods, supervisor, is_blind } = self;
        let crowd = Crowd { holders, seats, pods, supervisor: *supervisor, is_blind: *is_blind };
        crowd.whose(&card(number), pid, |pid| (pid == 12).then_some((2, 200)))
    }
}

fn of(at: usize, is_seated: bool) -> Whose {
    Whose::Holder { at, is_seated }
}

#[test]
fn a_process_is_told_by_its_lock_its_slot_its_neighbours_or_as_the_only_one() {
    let mut town = Town::new();
    assert_eq!(town.whose(0, 10), of(0, true), "its lock");
    assert_eq!(town.whose(1, 12), of(0, true), "its slot, whose lock it has lost");
    assert_eq!(town.whose(1, 11), of(0, false), "beside 10");
    assert_eq!(town.whose(1, 13), of(1, false), "the only one with this card");
    assert_eq!(town.whose(1, 20), of(2, false), "the only one of its pod");
    assert_eq!(town.whose(0, 99), Whose::Nobody);
    town.is_blind = true;
    assert_eq!(town.whose(0, 99), Whose::Unknown);
    town.holders[1].parts[0].0 = card(0);
    assert_eq!(town.whose(0, 13), Whose::Pod("uid-a".to_owned()), "either");
}

/// This test is taken for a server, and what has started it for the control daemon.
#[test]
fn a_server_of_the_service_is_told_by_who_started_it() {
    let (server, control) = (std::process::id(), std::os::unix::process::parent_id());
    let mut town = Town::new();
    assert_eq!(town.whose(0, server), Whose::Nobody);
    town.supervisor = Some(control);
    assert_eq!(town.whose(0, server), Whose::Service);
    assert_eq!(town.whose(0, 10), of(0, true), "a client is its container's");
    town.supervisor = Some(server);
    assert_eq!(town.whose(0, server), Whose::Nobody, "another's");
    let above = std::fs::read_to_string(format!("/proc/{control}/stat")).ok().and_then(|stat| processes::parent(&stat));
    town.supervisor = above.filter(|above| *above > 0);
    let whose = if town.supervisor.is_some() { Whose::Service } else { Whose::Nobody };
    assert_eq!(town.whose(0, server), whose, "the supervisor is above the control daemon");
}

fn inventory(processes: Option<Vec<CardProcess>>, health: CardHealth) -> Arc<Inventory> {
    let card = CardInfo {
        id: card(0),
        model: String::new(),
        memory: divvy_api::Memory::mib(1000),
        pci_bus_id: String::new(),
        minor: None,
        numa: None,
        mig: None,
        health,
        memory_used: None,
        utilization: None,
        processes,
    };
    Arc::new(Inventory { cards: vec![card], ..Inventory::default() })
}

/// What pod `a`'s one container uses of card 0, with a cgroup that says so.
fn measured(procs: &str, inventory: &Arc<Inventory>) -> (Option<u64>, Option<String>) {
    let root = tempfile::tempdir().expect("a directory");
    let cgroup = root.path().join("kubepods/poduid-a");
    std::fs::create_dir_all(&cgroup).expect("a directory");
    std::fs::write(cgroup.join("cgroup.procs"), procs).expect("a file");
    let mut holders = [holder("a", false)];
    let measured = Driver::default().measure(inventory, None, &mut holders, &[None], root.path(), Instant::now());
    (measured.bytes(0, &holders[0], &card(0)), measured.problem)
}

#[test]
fn what_is_not_wholly_known_is_not_said() {
    let process = |pid, bytes| CardProcess { pid, bytes };
    let known = |bytes| {
        inventory(Some(vec![process(10, Some(5)), process(11, bytes), process(99, Some(50))]), CardHealth::Healthy)
    };
    assert_eq!(measured("10\n11\n", &known(Some(7))), (Some(12), None));
    assert_eq!(measured("10\n", &known(Some(7))), (Some(5), None));
    assert_eq!(measured("10\n11\n", &known(None)), (None, None), "NVML doesn't say how much");
    let hidden = "processes of pods have no number in the daemon's PID namespace, which needs hostPID";
    assert_eq!(measured("10\n0\n", &known(Some(7))), (None, Some(hidden.to_owned())));
    assert_eq!(measured("", &inventory(Some(vec![]), CardHealth::Healthy)), (Some(0), None));
    let problem = Some("NVML doesn't tell the processes of any card".to_owned());
    assert_eq!(measured("10\n", &inventory(None, CardHealth::Healthy)), (None, problem.clone()));
    let sick = CardHealth::Unhealthy { reason: "XID 79".to_owned() };
    assert_eq!(measured("10\n", &inventory(Some(vec![process(10, Some(5))]), sick)), (None, problem));
}

#[test]
fn pods_are_looked_through_when_something_has_changed_or_after_a_while() {
    let root = tempfile::tempdir().expect("a directory");
    let procs = root.path().join("kubepods/poduid-a/cgroup.procs");
    std::fs::create_dir_all(procs.parent().expect("a directory")).expect("a directory");
    let process = CardProcess { pid: 10, bytes: Some(5) };
    let (first, second) =
        (inventory(Some(vec![process]), CardHealth::Healthy), inventory(Some(vec![process]), CardHealth::Healthy));
    let (mut driver, mut holders, start) = (Driver::default(), [holder("a", false)], Instant::now());
    let mut look = |pids: &str, inventory: &Arc<Inventory>, seconds| {
        std::fs::write(&procs, pids).expect("a file");
        let measured =
            driver.measure(inventory, None, &mut holders, &[None], root.path(), start + Duration::from_secs(seconds));
        measured.cards[&card(0)][0].whose == of(0, false)
    };
    assert!(!look("", &first, 0));
    assert!(!look("10\n", &first, 1), "nothing has changed");
    assert!(look("10\n", &second, 1), "NVML has shown something new");
    assert!(look("", &second, 5));
    assert!(!look("", &second, 6));
}

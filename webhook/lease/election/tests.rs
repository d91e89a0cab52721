use proptest::prelude::*;

use super::*;
use crate::lease::Timing;

const TIMING: Timing = Timing {
    duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

/// As a holder leaves it that releases the Lease.
const RELEASED: Duration = Duration::from_secs(1);

fn candidate(number: u8) -> Candidate {
    Candidate { identity: format!("divvy-webhook-{number}"), timing: TIMING }
}

fn acquire(of: &Candidate, version: u64) -> Acquire {
    Acquire { holder: of.identity.clone(), duration: of.timing.duration, version: version.to_string() }
}

fn after(start: Instant, seconds: u64) -> Instant {
    start + Duration::from_secs(seconds)
}

/// An election that leads since `start`.
fn leading(start: Instant) -> Election {
    let mut election = Election::new(candidate(1));
    election.observe(None, start);
    assert!(election.may_acquire(start));
    election.accepted(acquire(&candidate(1), 0), start, start);
    election
}

/// An election that saw another lead at `start`.
fn following(start: Instant) -> Election {
    let mut election = Election::new(candidate(2));
    election.observe(Some(acquire(&candidate(1), 0)), start);
    election
}

#[test]
fn nothing_is_acquired_before_the_lease_was_read() {
    assert!(!Election::new(candidate(1)).may_acquire(Instant::now()));
}

#[test]
fn term_counts_from_before_the_renewal_was_sent() {
    let start = Instant::now();
    let mut election = leading(start);
    assert_eq!(election.leader(after(start, 9)), Leader::Us { term: 1, until: after(start, 10) });
    election.accepted(acquire(&candidate(1), 9), after(start, 5), after(start, 9));
    assert_eq!(election.leader(after(start, 14)), Leader::Us { term: 1, until: after(start, 15) });
    assert_eq!(election.leader(after(start, 15)), Leader::Nobody);
}

#[test]
fn late_renewal_begins_a_new_term_or_none() {
    let start = Instant::now();
    let mut election = leading(start);
    election.accepted(acquire(&candidate(1), 1), after(start, 8), after(start, 12));
    assert_eq!(election.leader(after(start, 12)), Leader::Us { term: 2, until: after(start, 18) });
    election.accepted(acquire(&candidate(1), 2), after(start, 20), after(start, 31));
    assert_eq!(election.leader(after(start, 31)), Leader::Nobody);
}

#[test]
fn follower_knows_the_leader_until_the_lease_expires() {
    let start = Instant::now();
    let mut election = following(start);
    election.observe(Some(acquire(&candidate(1), 0)), after(start, 14));
    let other = Leader::Other { identity: "divvy-webhook-1".to_owned() };
    assert_eq!(election.leader(after(start, 14)), other);
    assert!(!election.may_acquire(after(start, 14)));
    assert_eq!(election.leader(after(start, 15)), Leader::Nobody);
    assert!(election.may_acquire(after(start, 15)));
    election.observe(Some(acquire(&candidate(1), 1)), after(start, 15));
    assert_eq!(election.leader(after(start, 15)), other);
    assert!(!election.may_acquire(after(start, 15)));
}

#[test]
fn longer_lease_duration_counts_up_to_a_bound() {
    let start = Instant::now();
    for (seconds, wait) in [(0, 15), (60, 60), (1_000_000, 150)] {
        let mut election = Election::new(candidate(2));
        let promise = Acquire { duration: Duration::from_secs(seconds), ..acquire(&candidate(1), 0) };
        election.observe(Some(promise), start);
        assert!(!election.may_acquire(after(start, wait - 1)), "{seconds}");
        assert!(election.may_acquire(after(start, wait)), "{seconds}");
    }
}

#[test]
fn only_a_released_lease_is_acquired_at_once() {
    let start = Instant::now();
    let given_up = Acquire { holder: String::new(), duration: RELEASED, ..acquire(&candidate(1), 1) };
    let edited = Acquire { holder: String::new(), ..acquire(&candidate(1), 0) };
    for (seen, wait) in [(Some(given_up), 0), (Some(edited), 15), (None, 15)] {
        let mut election = following(start);
        election.observe(seen.clone(), start);
        assert!(election.may_acquire(after(start, wait)), "{seen:?}");
        assert!(wait == 0 || !election.may_acquire(after(start, wait - 1)), "{seen:?}");
    }
}

#[test]
fn leader_restores_a_deleted_or_emptied_lease() {
    let start = Instant::now();
    let emptied = Acquire { holder: String::new(), ..acquire(&candidate(1), 0) };
    for seen in [None, Some(emptied)] {
        let mut election = leading(start);
        election.observe(seen, after(start, 2));
        assert!(election.may_acquire(after(start, 2)));
        election.accepted(acquire(&candidate(1), 2), after(start, 2), after(start, 3));
        assert_eq!(election.leader(after(start, 3)).term(after(start, 3)), Some(1));
    }
}

#[test]
fn holder_written_by_hand_ends_the_term() {
    let start = Instant::now();
    let written = Acquire { holder: "divvy-webhook-2".to_owned(), ..acquire(&candidate(1), 0) };
    let (mut leader, mut follower) = (leading(start), following(start));
    leader.observe(Some(written.clone()), after(start, 1));
    follower.observe(Some(written), after(start, 1));
    for mut election in [leader, follower] {
        assert_eq!(election.leader(after(start, 1)).term(after(start, 1)), None);
        assert!(!election.may_acquire(after(start, 15)));
        assert!(election.may_acquire(after(start, 16)));
    }
}

// === any history ===

/// What may happen; candidates by number.
#[derive(Clone, Debug)]
enum Happening {
    /// Milliseconds pass.
    Pass(u64),
    /// Sends the next request, if none is under way.
    Send(usize),
    /// The request reaches the API server, which answers.
    Arrive(usize),
    /// The answer comes.
    Hear(usize),
    /// Waits no longer; the request may still arrive.
    Abandon(usize),
    /// A request that nobody waits for arrives.
    Late(usize),
    /// Looks at the Lease and does what is to do, without delay.
    Round(usize),
    /// Gives up and starts again with the next request.
    GiveUp(usize),
    /// Is killed and started again under the same name.
    Restart(usize),
}

/// What a candidate asks the API server for.
#[derive(Clone, Debug)]
enum Request {
    Get,
    Put { acquire: Acquire, version: u64 },
}

/// An answer: the Lease and its version, or a conflict.
type Answer = Option<(Option<Acquire>, u64)>;

#[derive(Debug)]
struct Process {
    election: Election,
    /// When it was sent, and what.
    request: Option<(Instant, Request)>,
    answer: Option<(Instant, bool, Answer)>,
    /// What the last answer allows to write, and over which version.
    next: Option<Request>,
}

struct World {
    now: Instant,
    lease: Option<Acquire>,
    version: u64,
    processes: Vec<Process>,
    late: Vec<Request>,
    /// Which of them led last, and how often that changed.
    led: Option<usize>,
    changes: usize,
}

impl World {
    fn new() -> Self {
        let processes = (0..3).map(Process::new).collect();
        Self { now: Instant::now(), lease: None, version: 0, processes, late: Vec::new(), led: None, changes: 0 }
    }

    fn happen(&mut self, happening: &Happening) {
        match *happening {
            Happening::Pass(milliseconds) => self.now += Duration::from_millis(milliseconds),
            Happening::Send(of) => {
                let process = &mut self.processes[of];
                if process.request.is_none() && process.answer.is_none() {
                    process.request = Some((self.now, process.next.take().unwrap_or(Request::Get)));
                }
            }
            Happening::Arrive(of) => {
                if let Some((sent, request)) = self.processes[of].request.take() {
                    let put = matches!(request, Request::Put { .. });
                    self.processes[of].answer = Some((sent, put, self.serve(request)));
                }
            }
            Happening::Hear(of) => self.hear(of),
            Happening::Abandon(of) => {
                self.processes[of].answer = None;
                let request = self.processes[of].request.take();
                self.late.extend(request.map(|(_, request)| request));
            }
            Happening::Late(which) => {
                if !self.late.is_empty() {
                    let request = self.late.swap_remove(which % self.late.len());
                    self.serve(request);
                }
            }
            Happening::Round(of) => {
                for step in [Happening::Send, Happening::Arrive, Happening::Hear].iter().cycle().take(6) {
                    self.happen(&step(of));
                }
            }
            Happening::GiveUp(of) => {
                self.processes[of].election.release();
                self.happen(&Happening::Abandon(of));
                if let Some(mut acquire) =
                    self.lease.clone().filter(|acquire| acquire.is_of(&candidate(number(of)).identity))
                {
                    (acquire.holder, acquire.duration) = (String::new(), RELEASED);
                    self.processes[of].next = Some(Request::Put { acquire, version: self.version });
                }
            }
            Happening::Restart(of) => {
                self.happen(&Happening::Abandon(of));
                self.processes[of] = Process::new(of);
            }
        }
    }

    fn serve(&mut self, request: Request) -> Answer {
        if let Request::Put { acquire, version } = request {
            if version != self.version {
                return None;
            }
            self.version += 1;
            self.lease = Some(Acquire { version: self.version.to_string(), ..acquire });
        }
        Some((self.lease.clone(), self.version))
    }

    fn hear(&mut self, of: usize) {
        let now = self.now;
        let process = &mut self.processes[of];
        let Some((sent, put, answer)) = process.answer.take() else { return };
        match answer {
            // What was given up is nobody's.
            Some((Some(acquire), _)) if put && acquire.is_of(&candidate(number(of)).identity) => {
                process.election.accepted(acquire, sent, now);
            }
            Some((lease, version)) if !put => {
                process.election.observe(lease, now);
                if process.election.may_acquire(now) {
                    let acquire = acquire(&candidate(number(of)), version);
                    process.next = Some(Request::Put { acquire, version });
                }
            }
            _ => {}
        }
    }

    /// Fails if two lead.
    fn check(&mut self) {
        let leaders = self.processes.iter().enumerate();
        let leaders: Vec<usize> =
            leaders.filter(|(_, p)| p.election.leader(self.now).term(self.now).is_some()).map(|(of, _)| of).collect();
        assert!(leaders.len() <= 1, "{leaders:?} lead at one time");
        if let [leader] = leaders[..]
            && self.led != Some(leader)
        {
            (self.led, self.changes) = (Some(leader), self.changes + 1);
        }
    }
}

impl Process {
    fn new(of: usize) -> Self {
        Self { election: Election::new(candidate(number(of))), request: None, answer: None, next: None }
    }
}

fn number(of: usize) -> u8 {
    u8::try_from(of).unwrap() + 1
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (1u64..8000).prop_map(Happening::Pass),
        6 => (0usize..3).prop_map(Happening::Send),
        6 => (0usize..3).prop_map(Happening::Arrive),
        6 => (0usize..3).prop_map(Happening::Hear),
        1 => (0usize..3).prop_map(Happening::Abandon),
        1 => (0usize..8).prop_map(Happening::Late),
        4 => (0usize..3).prop_map(Happening::Round),
        1 => (0usize..3).prop_map(Happening::GiveUp),
        1 => (0usize..3).prop_map(Happening::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn two_replicas_never_lead_at_once(history in prop::collection::vec(happening(), 1..400)) {
        let mut world = World::new();
        for happening in &history {
            world.happen(happening);
            world.check();
        }
    }
}

#[test]
fn leadership_changes_in_random_histories() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut world = World::new();
    for _ in 0..20_000 {
        world.happen(&happening().new_tree(&mut runner).unwrap().current());
        world.check();
    }
    assert!(world.changes > 100, "only {} changes", world.changes);
}

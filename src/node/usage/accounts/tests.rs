use proptest::prelude::*;

use super::super::fixture::{Books, Counters, owner};
use super::*;

/// What happens between two looks at a container's region.
#[derive(Clone, Debug)]
enum Event {
    /// The process of a slot, which is started if there is none, uses so much GPU time.
    Work(usize, u64),
    /// It ends, and somebody frees its slot.
    Die(usize),
    /// Launches, throttled ns, allocations refused, functions unhooked.
    Count([u32; 4]),
    /// The region is made anew.
    Anew,
    /// A tenant writes nonsense.
    Scribble(prop::sample::Index, u64),
}

fn honest() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..4_usize, 0..1_u64 << 40).prop_map(|(slot, ns)| Event::Work(slot, ns)),
        2 => (0..4_usize).prop_map(Event::Die),
        3 => any::<[u32; 4]>().prop_map(Event::Count),
        1 => Just(Event::Anew),
    ]
}

/// A container as it is, beside what is made of it.
struct World {
    books: Books,
    slots: [Option<(Owner, u64)>; 4],
    counters: Counters,
    generation: u64,
    born: u64,
    /// GPU time, throttled ns, launches, allocations refused, functions unhooked: what really happened.
    truth: [u64; 5],
}

impl World {
    fn new() -> Self {
        let (books, counters) = (Books::new(0), Counters::default());
        Self { books, slots: [None; 4], counters, generation: 0, born: 0, truth: [0; 5] }
    }

    fn play(&mut self, event: &Event) {
        match *event {
            Event::Work(slot, ns) => {
                self.born += 1;
                let fresh = (owner(7, self.born), 0);
                let (owner, busy) = self.slots[slot].get_or_insert(fresh);
                *busy += ns;
                self.truth[0] += ns;
                self.books.seat(slot, Some(*owner));
                self.books.uses(slot, Usage { busy_ns: *busy, committed: 10, ..Usage::default() });
            }
            Event::Die(slot) => {
                self.slots[slot] = None;
                self.books.uses(slot, Usage::default());
                self.books.seat(slot, None);
            }
            Event::Count([launches, throttled, ooms, unknown]) => {
                let Counters { launches: a, throttled_ns: b, ooms: c, unknown: d, .. } = &mut self.counters;
                for (at, (sum, more)) in
                    [(b, throttled), (a, launches), (c, ooms), (d, unknown)].into_iter().enumerate()
                {
                    *sum += u64::from(more);
                    self.truth[at + 1] += u64::from(more);
                }
                self.books.count(self.counters);
            }
            Event::Anew => {
                self.generation += 1;
                (self.books, self.slots, self.counters) = (Books::new(self.generation), [None; 4], Counters::default());
            }
            Event::Scribble(at, word) => {
                let at = divvy_region::layout::LINE + at.index((self.books.0.len() - 64) / 8) * 8;
                self.books.words(at, &[word]);
            }
        }
    }
}

fn counted(accounts: &Accounts, nonce: Nonce) -> [u64; 5] {
    let RegionUsage { busy_ns, throttled_ns, launches, out_of_memory, unhooked, .. } =
        accounts.totals(nonce, 0).expect("looked at");
    [busy_ns, throttled_ns, launches, out_of_memory, unhooked]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Looked at now and then, and before each end, as the daemon does before it frees a slot.
    #[test]
    fn counters_equal_recorded_events(events in prop::collection::vec((honest(), any::<bool>()), 1..60)) {
        let (mut world, mut accounts, nonce, mut at) = (World::new(), Accounts::default(), Nonce::random(), Instant::now());
        for (number, (event, now_and_then)) in events.iter().enumerate() {
            world.play(event);
            let next = events.get(number + 1);
            let is_before_an_end = next.is_none_or(|(next, _)| matches!(next, Event::Die(_) | Event::Anew));
            if !(*now_and_then || is_before_an_end) {
                continue;
            }
            at += Duration::from_millis(500);
            accounts.take(nonce, 1, world.books.snapshot(), at);
            prop_assert_eq!(counted(&accounts, nonce), world.truth);
            let live_processes = world.slots.iter().flatten().count();
            prop_assert_eq!(accounts.totals(nonce, 0).map(|books| books.processes as usize), Some(live_processes));
        }
    }

    #[test]
    fn counters_never_decrease(
        events in prop::collection::vec(
            prop_oneof![
                honest(),
                (any::<prop::sample::Index>(), any::<u64>()).prop_map(|(at, word)| Event::Scribble(at, word)),
            ],
            1..60,
        ),
        files in prop::collection::vec(0..2_u64, 60),
    ) {
        let (mut world, mut accounts, nonce, mut at) = (World::new(), Accounts::default(), Nonce::random(), Instant::now());
        let mut before = [0; 5];
        for (event, file) in events.iter().zip(files) {
            world.play(event);
            at += Duration::from_millis(500);
            accounts.take(nonce, file, world.books.snapshot(), at);
            let now = counted(&accounts, nonce);
            prop_assert!(before.iter().zip(now).all(|(before, now)| *before <= now), "{before:?} {now:?}");
            prop_assert!(accounts.totals(nonce, 0).is_some_and(|books| books.busy_percent.is_none_or(|busy| busy <= 100)));
            before = now;
        }
    }
}

#[test]
fn gpu_time_is_averaged_over_two_seconds() {
    let (mut world, mut accounts, nonce, start) = (World::new(), Accounts::default(), Nonce::random(), Instant::now());
    let mut busy_after = |millis: u64, ns: u64| {
        world.play(&Event::Work(0, ns));
        accounts.take(nonce, 1, world.books.snapshot(), start + Duration::from_millis(millis));
        accounts.totals(nonce, 0).expect("looked at").busy_percent
    };
    assert_eq!(busy_after(0, 9_000_000_000), None, "over no time");
    assert_eq!(busy_after(500, 150_000_000), Some(30));
    assert_eq!(busy_after(1000, 0), Some(15));
    assert_eq!(busy_after(2000, 0), Some(8), "150 ms of 2 s");
    assert_eq!(busy_after(3000, 0), Some(0), "of the last 2 s");
    assert_eq!(busy_after(3500, 60_000_000_000), Some(100), "a long kernel has ended");
}

#[test]
fn memory_is_current_and_ended_regions_are_dropped() {
    let (mut world, mut accounts, nonce, at) = (World::new(), Accounts::default(), Nonce::random(), Instant::now());
    world.play(&Event::Work(0, 1));
    world.play(&Event::Work(2, 1));
    world.books.uses(2, Usage { committed: 130, imported: 7, ..Usage::default() });
    accounts.take(nonce, 1, world.books.snapshot(), at);
    let books = accounts.totals(nonce, 0).expect("looked at");
    assert_eq!((books.used_bytes, books.imported_bytes, books.processes), (140, 7, 2));
    assert_eq!((accounts.totals(nonce, 1), accounts.totals(Nonce::random(), 0)), (None, None));
    accounts.retain(&HashSet::new());
    assert_eq!(accounts.totals(nonce, 0), None);
}

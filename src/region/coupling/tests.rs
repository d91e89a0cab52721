use super::*;
use crate::owned::Owned;

const NOW: u64 = 1_000_000_000_000;
const HALF: Share = Share::from_parts(5000);
const MILLISECOND: u64 = 1_000_000;

/// A region of two cards with a process on each.
fn two() -> Owned {
    Owned::with_high(2, 2, 2)
}

fn gate(region: &Region<'_>, card: usize, alone: Gate, before: Gate) -> Gate {
    region.coupled_gate(card, alone, before, HALF, NOW)
}

#[test]
fn cards_are_coupled_when_work_overruns_while_another_holds() {
    let owned = two();
    let region = owned.region();
    region.overran(0, NOW);
    assert!(!region.is_coupled(NOW), "nothing is held");
    region.accounts(0).unwrap().account(0).unwrap().hold_until(NOW + 1);
    region.overran(0, NOW);
    assert!(!region.is_coupled(NOW), "it may wait for its own successor, which can't be first");
    region.accounts(1).unwrap().account(1).unwrap().hold_until(NOW + 1);
    region.overran(0, NOW);
    assert!(region.is_coupled(NOW) && region.is_coupled(NOW + MIN_COUPLED_NS - 1));
    assert!(!region.is_coupled(NOW + MIN_COUPLED_NS));
}

#[test]
fn coupling_lasts_twice_as_long_if_it_is_soon_needed_again() {
    let owned = two();
    let region = owned.region();
    region.accounts(1).unwrap().account(1).unwrap().hold_until(u64::MAX);
    let mut now = NOW;
    for lasts in [1, 2, 4, 8, 16, 30, 30] {
        region.overran(0, now);
        let end = now + lasts * 1_000_000_000;
        assert!(region.is_coupled(end - 1) && !region.is_coupled(end), "{lasts} s");
        now = end + SOON_NS - 1;
    }
    region.overran(0, now + SOON_NS);
    assert!(!region.is_coupled(now + SOON_NS + MIN_COUPLED_NS), "it wasn't needed for a while");
}

#[test]
fn coupled_card_waits_for_one_in_debt() {
    let owned = two();
    let region = owned.region();
    let other = region.accounts(1).unwrap().account(1).unwrap();
    other.hold_until(NOW + 1);
    region.card(1).unwrap().debit(MILLISECOND);
    assert_eq!(gate(&region, 0, Gate::Open, Gate::Open), Gate::Shut);
    other.hold_until(0);
    assert_eq!(gate(&region, 0, Gate::Open, Gate::Open), Gate::Open, "who wants nothing isn't waited for");
}

#[test]
fn idle_coupled_card_launches_one_kernel_on_limited_debt() {
    let owned = two();
    let region = owned.region();
    let own = region.accounts(0).unwrap().account(0).unwrap();
    region.card(0).unwrap().debit(MILLISECOND);
    assert_eq!(gate(&region, 0, Gate::Shut, Gate::Shut), Gate::Shut, "nobody waits for it");
    region.accounts(1).unwrap().account(1).unwrap().launched(1);
    assert_eq!(gate(&region, 0, Gate::Shut, Gate::Shut), Gate::Single);
    own.launched(1);
    assert_eq!(gate(&region, 0, Gate::Shut, Gate::Single), Gate::Shut, "one at a time");
    own.completed(1, 1);
    region.card(0).unwrap().debit(49 * MILLISECOND);
    assert_eq!(gate(&region, 0, Gate::Shut, Gate::Shut), Gate::Shut, "that is all of the debt");
}

#[test]
fn container_with_one_card_is_never_coupled() {
    let owned = Owned::with_high(1, 1, 1);
    let region = owned.region();
    region.accounts(0).unwrap().account(0).unwrap().hold_until(u64::MAX);
    region.overran(0, NOW);
    assert!(!region.is_coupled(NOW));
}

#[test]
fn moment_far_ahead_is_not_believed() {
    let owned = two();
    let region = owned.region();
    region.header.coupled_until_ns.store(u64::MAX, Ordering::Relaxed);
    assert!(!region.is_coupled(NOW));
}

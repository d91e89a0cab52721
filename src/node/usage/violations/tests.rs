use proptest::prelude::*;

use super::super::fixture::{card, holder};
use super::*;

const MIB: u64 = 1 << 20;

fn on_card(pid: u32, mib: u64, owner: ProcessOwner) -> GpuProcess {
    GpuProcess { pid, bytes: Some(mib * MIB), owner }
}

fn of(at: usize, has_slot: bool) -> ProcessOwner {
    ProcessOwner::Holder { at, has_slot }
}

/// What is found of this on a card after it has been seen for long enough.
fn found(holders: &[Holder], number: u8, processes: Vec<GpuProcess>) -> Vec<ShareViolation> {
    let (mut violations, cards, now) =
        (ViolationTracker::default(), BTreeMap::from([(card(number), processes)]), Instant::now());
    assert_eq!(violations.update(holders, &cards, now), [], "not at once");
    violations.update(holders, &cards, now + PATIENCE)
}

fn messages(findings: &[ShareViolation]) -> String {
    findings.iter().map(|finding| format!("{}: {}", finding.kind, finding.message)).collect::<Vec<_>>().join("\n")
}

#[test]
fn violation_message_names_container_and_gpu() {
    let holders = [holder("a", true), holder("b", false)];
    let seen = vec![
        on_card(10, 60, of(0, true)),
        on_card(11, 46, of(0, false)),
        on_card(20, 100, of(1, false)),
        on_card(30, 1, ProcessOwner::Nobody),
        on_card(31, 2, ProcessOwner::Nobody),
        on_card(40, 500, ProcessOwner::Pod("uid-c".to_owned())),
        on_card(50, 30, ProcessOwner::Service),
    ];
    insta::assert_snapshot!(messages(&found(&holders, 0, seen)), @r"
    above-share: container main of pod team/a uses 106Mi of GPU-0 according to the driver; its share is 100Mi (processes 10, 11 of the host)
    without-library: container main of pod team/a uses GPU-0 without libdivvy, so its share is not enforced: process 11 of the host, 46Mi
    foreign: GPU-0 is used by a process without a share: processes 30, 31 of the host, 3Mi
    ");
}

#[test]
fn share_used_up_by_contexts_is_a_violation() {
    let mut starved = holder("a", true);
    starved.overheads = vec![100 * MIB - 1];
    assert_eq!(found(&[starved.clone()], 0, vec![on_card(10, 102, of(0, true))]), [], "a byte is left");
    starved.overheads = vec![100 * MIB];
    let findings = found(&[starved], 0, vec![on_card(10, 102, of(0, true))]);
    insta::assert_snapshot!(messages(&findings), @"above-share: container main of pod team/a uses 102Mi of GPU-0 according to the driver; its share is 100Mi (process 10 of the host): contexts and modules take 100Mi, so it can't allocate memory");
}

#[test]
fn functions_unknown_to_the_library_are_a_violation() {
    let behind = Holder { unhooked: 3, ..holder("a", true) };
    let findings = found(&[behind], 0, vec![on_card(10, 60, of(0, true))]);
    insta::assert_snapshot!(messages(&findings), @"unhooked-function: container main of pod team/a looked up driver functions that libdivvy doesn't know (3 times), so its share may not be enforced");
}

#[test]
fn share_of_another_gpu_does_not_count() {
    let findings = found(&[holder("a", true)], 1, vec![on_card(10, 60, of(0, true))]);
    insta::assert_snapshot!(messages(&findings), @"foreign: container main of pod team/a uses GPU-1 without a share of it: process 10 of the host, 60Mi");
}

#[test]
fn exclusive_container_never_exceeds_its_share() {
    let mut alone = holder("a", false);
    alone.parts[0].1.exclusive = true;
    assert_eq!(found(&[alone], 0, vec![on_card(10, 5000, of(0, false))]), []);
}

#[test]
fn memory_that_the_driver_does_not_tell_is_not_guessed() {
    let process = GpuProcess { pid: 10, bytes: None, owner: of(0, true) };
    assert_eq!(found(&[holder("a", true)], 0, vec![process]), []);
}

proptest! {
    /// Against the plain statement: it was so at every look of the last ten seconds at least.
    #[test]
    fn violation_is_active_after_ten_seconds(
        looks in prop::collection::vec((0..7_u64, 90..120_u64), 1..40),
    ) {
        let (mut violations, mut now, start) = (ViolationTracker::default(), Instant::now(), Instant::now());
        let mut since = None;
        for (pause, mib) in looks {
            now += Duration::from_secs(pause);
            let cards = BTreeMap::from([(card(0), vec![on_card(10, mib, of(0, true))])]);
            let findings = violations.update(&[holder("a", true)], &cards, now);
            since = (mib > 105).then(|| since.unwrap_or(now));
            let stands = since.is_some_and(|since| now - since >= PATIENCE);
            prop_assert_eq!(findings.len(), usize::from(stands), "at {:?}", now - start);
            prop_assert!(findings.iter().all(|found| found.bytes == mib * MIB && found.seconds == (now - since.expect("it stands")).as_secs()));
        }
    }

    #[test]
    fn each_violation_names_its_container_and_processes(
        processes in prop::collection::vec((0..4_usize, any::<bool>(), 0..80_u64), 0..12),
    ) {
        let holders = [holder("a", true), holder("b", false), holder("c", true)];
        let owner_of = |at: usize, seated| if at < 3 { of(at, seated) } else { ProcessOwner::Nobody };
        let seen: Vec<GpuProcess> = (1..).zip(&processes).map(|(pid, (at, seated, mib))| on_card(pid, *mib, owner_of(*at, *seated))).collect();
        let findings = found(&holders, 0, seen.clone());
        for (at, holder) in holders.iter().enumerate() {
            let own = || seen.iter().filter(|process| matches!(process.owner, ProcessOwner::Holder { at: found, .. } if found == at));
            let used: u64 = own().filter_map(|process| process.bytes).sum();
            let is = |kind| findings.iter().any(|found| found.kind == kind && found.of.as_ref() == Some(&holder.of));
            prop_assert_eq!(is(ViolationKind::AboveShare), used > 105 * MIB);
            let unseated = own().any(|process| matches!(process.owner, ProcessOwner::Holder { has_slot: false, .. }));
            prop_assert_eq!(is(ViolationKind::WithoutLibrary), holder.has_library && unseated);
        }
        let nobodys = seen.iter().any(|process| process.owner == ProcessOwner::Nobody);
        prop_assert_eq!(findings.iter().any(|found| found.kind == ViolationKind::Foreign), nobodys);
    }
}

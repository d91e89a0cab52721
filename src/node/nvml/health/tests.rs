use proptest::prelude::*;

use super::*;

/// A second, and what was observed then.
type At = (u64, Observation);

const GOOD: Observation = Observation::Answered { ecc_uncorrected: None };

fn failed(reason: &str) -> Observation {
    Observation::Failed { reason: reason.to_owned() }
}

fn memory_errors(count: u64) -> Observation {
    Observation::Answered { ecc_uncorrected: Some(count) }
}

fn options() -> HealthOptions {
    HealthOptions { ignored_xids: BTreeSet::from([13, 31]), recover_after: Duration::from_secs(60) }
}

/// The verdict after observations at these seconds.
fn after(history: &[At]) -> String {
    let start = Instant::now();
    let mut health = HealthState::default();
    for (second, observation) in history {
        health.observe(&options(), start + Duration::from_secs(*second), observation.clone());
    }
    health.verdict().to_string()
}

#[test]
fn verdicts() {
    let cases: [(&str, &[At], &str); 11] = [
        ("nothing known", &[], "unhealthy: NVML has not answered yet"),
        ("first answer", &[(0, GOOD)], "healthy"),
        ("fails from the start", &[(0, failed("lost"))], "unhealthy: lost"),
        ("critical XID", &[(0, GOOD), (1, Observation::Xid(79))], "unhealthy: XID 79"),
        ("XID of an application", &[(0, GOOD), (1, Observation::Xid(31))], "healthy"),
        ("one answer is no recovery", &[(0, failed("lost")), (90, GOOD)], "unhealthy: lost"),
        ("well for long enough", &[(0, failed("lost")), (90, GOOD), (150, GOOD)], "healthy"),
        (
            "a failure starts the count again",
            &[(0, Observation::Xid(79)), (1, GOOD), (60, failed("lost")), (61, GOOD), (120, GOOD)],
            "unhealthy: lost",
        ),
        ("old memory errors", &[(0, memory_errors(7)), (5, memory_errors(7))], "healthy"),
        (
            "new memory errors",
            &[(0, memory_errors(7)), (5, memory_errors(9))],
            "unhealthy: 2 new uncorrected memory errors",
        ),
        ("counter reset", &[(0, memory_errors(7)), (5, memory_errors(0))], "healthy"),
    ];
    for (name, history, verdict) in cases {
        assert_eq!(after(history), verdict, "{name}");
    }
}

fn observation() -> impl Strategy<Value = Observation> {
    prop_oneof![
        6 => Just(GOOD),
        1 => Just(failed("lost")),
        1 => (0u64..130).prop_map(Observation::Xid),
    ]
}

proptest! {
    /// The whole history looked at from its end, instead of step by step.
    #[test]
    fn healthy_means_well_since_the_last_failure(steps in prop::collection::vec((0u64..40, observation()), 0..40)) {
        let options = options();
        let is_failure = |observation: &Observation| match observation {
            Observation::Answered { .. } => false,
            Observation::Failed { .. } => true,
            Observation::Xid(xid) => !options.ignored_xids.contains(xid),
        };
        let history: Vec<_> = steps.into_iter().scan(0, |now, (wait, observation)| {
            *now += wait;
            Some((*now, observation))
        }).collect();
        let last_failure = history.iter().rposition(|(_, observation)| is_failure(observation));
        let since = &history[last_failure.map_or(0, |at| at + 1)..];
        let answers: Vec<u64> = since.iter().filter(|(_, o)| *o == GOOD).map(|(second, _)| *second).collect();
        let well_for = answers.last().zip(answers.first()).map(|(last, first)| last - first);
        let needed = if last_failure.is_some() { options.recover_after.as_secs() } else { 0 };
        prop_assert_eq!(after(&history) == "healthy", well_for.is_some_and(|well_for| well_for >= needed));
    }
}

//! A policy that learns, other shares, other pods, the picture.

use std::path::Path;
use std::sync::Arc;

use divvy_packing::churn::Unplaced;
use divvy_packing::contenders::Contender;
use divvy_packing::plot;
use divvy_packing::shares::Shares;
use divvy_packing::variants::Variant;
use divvy_simulate::policy::Ties;
use divvy_simulate::workload::{Kind, Models, Part, Taints, Workload};

/// The small trace of the simulator's tests.
fn trace() -> Arc<Workload> {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/simulate/tests/trace").join(name);
    Arc::new(Workload::read(&file("nodes.csv"), &file("pods.csv")).expect("sound"))
}

fn named(says: &str, ties: Ties) -> Contender {
    Contender::named(ties).into_iter().find(|contender| contender.says == says).expect("a name")
}

#[test]
fn policies_learn_expected_requests_from_arrivals() {
    let workload = trace();
    let allocated = |contender: Contender| {
        let (churned, ..) = contender.churn(&workload, &[1, 2], (1.2, Unplaced::Dropped));
        churned.allocated_pct_mean.to_bits()
    };
    let (told, learned) = (named("least-fragmentation", Ties::Random), Contender::restarted(None));
    assert_ne!(allocated(told), allocated(learned));
    assert_ne!(allocated(learned), allocated(Contender::restarted(Some(100))));
}

#[test]
fn plot_has_a_named_line_per_policy() {
    let workload = trace();
    let contenders = ["best-fit", "packing"].map(|says| named(says, Ties::Fixed));
    let reports = contenders.map(|contender| contender.fill(&workload, &[1, 2, 3], 120).0);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("plot.svg");
    plot::draw(&reports, 120, &file).expect("drawn");
    let svg = std::fs::read_to_string(&file).expect("written");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for text in ["best-fit", "packing", "what pods have asked for, % of all GPUs", "allocated, % of all GPUs"] {
        assert!(svg.contains(text), "{text} is missing");
    }
    assert!(plot::draw(&reports, 120, Path::new("/nowhere/plot.svg")).is_err());
}

fn kind(cards: u32, cpu: u32, cores: u32, memory: u32) -> Kind {
    Kind { cpu, memory: 1024, cards, part: Part { cores, memory }, models: Models::ANY, tolerates: Taints::default() }
}

#[test]
fn shares_halve_one_amount_in_whole_percents() {
    let part = |shares: Shares, cores, memory| {
        let Part { cores, memory } = shares.of(kind(1, 1000, cores, memory)).part;
        (cores, memory)
    };
    assert_eq!(part(Shares::AsGiven, 460, 300), (460, 300));
    assert_eq!(part(Shares::MemoryBound, 460, 460), (230, 460));
    assert_eq!(part(Shares::CoreBound, 810, 810), (810, 410));
    assert_eq!(part(Shares::CoreBound, 1, 1), (1, 1), "half of next to nothing is no more");
    assert_eq!(part(Shares::MemoryBound, 500, 1000), (500, 1000));
}

#[test]
fn whole_cards_and_pods_without_cards_stay_as_they_are() {
    for shares in [Shares::MemoryBound, Shares::CoreBound, Shares::Mixed] {
        for kind in [kind(8, 1000, 1000, 1000), kind(1, 1000, 1000, 1000), kind(0, 1000, 0, 0)] {
            assert_eq!(shares.of(kind), kind);
        }
    }
}

#[test]
fn mixed_shares_change_a_fixed_third_each_way() {
    let mixed = |cpu| Shares::Mixed.of(kind(1, cpu, 500, 500)).part;
    let mut counts = [0; 3];
    for part in (0..3000).map(mixed) {
        counts[usize::from(part.cores < part.memory) + 2 * usize::from(part.cores > part.memory)] += 1;
    }
    assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    let first: Vec<u32> = (0..6).map(|cpu| mixed(cpu).cores).collect();
    assert_eq!(first, [500, 500, 500, 250, 250, 250], "drawn as ever");
}

#[test]
fn pods_without_cards_come_twice() {
    let workload = trace();
    let twice = Variant::TwiceWithoutCards.of_workload(&workload);
    let count = |of: &Workload, kind: usize| of.pods.iter().filter(|pod| **pod == kind).count();
    for (number, kind) in workload.kinds.iter().enumerate() {
        let times = if kind.cards == 0 { 2 } else { 1 };
        assert_eq!(count(&twice, number), times * count(&workload, number), "{kind:?}");
    }
}

#[test]
fn third_of_the_pods_with_cards_names_a_model_where_it_fits() {
    let workload = trace();
    let picky = Variant::ThirdNamesModel.of_workload(&workload);
    assert_eq!(picky.pods, Variant::ThirdNamesModel.of_workload(&workload).pods, "the same draw each time");
    let mut changed = 0;
    for (before, after) in workload.pods.iter().zip(&picky.pods) {
        let (before, after) = (workload.kinds[*before], picky.kinds[*after]);
        assert_eq!(after, Kind { models: after.models, ..before });
        let models: Vec<usize> = (0..workload.models.len()).filter(|model| after.models.contain(*model)).collect();
        if after.models != before.models {
            changed += 1;
            let fits = |model: usize| {
                let mut machines = workload.machines.iter().filter(|machine| machine.model == model);
                machines.any(|machine| machine.cpu >= after.cpu && machine.cards >= after.cards)
            };
            assert!(models.len() == 1 && before.models.contain(models[0]) && fits(models[0]), "{after:?}");
        }
    }
    let with_cards = workload.pods.iter().filter(|kind| workload.kinds[**kind].cards > 0).count();
    assert!((with_cards / 4..with_cards * 5 / 12).contains(&changed), "{changed} of {with_cards}");
}

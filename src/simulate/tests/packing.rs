//! Parts of the bench `packing`: a policy that learns, other shares, other pods, the picture.

#![allow(dead_code, reason = "the bench uses the rest")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use divvy_api::annotation::PolicyName;
use divvy_simulate::churn::{Churned, Unplaced};
use divvy_simulate::learning::Learning;
use divvy_simulate::policy::{Name, Product, Scheduler, Ties};
use divvy_simulate::report::Report;
use divvy_simulate::study::{Outcome, Settings, study, study_with};
use divvy_simulate::target::Target;
use divvy_simulate::workload::{Kind, Models, Part, Taints, Workload};

use shares::Shares;
use variants::Variant;

#[path = "../benches/packing/plot.rs"]
mod plot;
#[path = "../benches/packing/shares.rs"]
mod shares;
#[path = "../benches/packing/variants.rs"]
mod variants;

fn trace() -> Arc<Workload> {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace").join(name);
    Arc::new(Workload::read(&file("nodes.csv"), &file("pods.csv")).expect("sound"))
}

fn churned(outcomes: Vec<Vec<Outcome>>) -> Vec<Option<Churned>> {
    outcomes.into_iter().flatten().map(|outcome| outcome.churned).collect()
}

#[test]
fn policies_learn_expected_requests_from_arrivals() {
    let workload = trace();
    let settings = Settings {
        policies: vec![Name::Product(PolicyName::LeastFragmentation)],
        seeds: vec![1, 2],
        until: 100,
        churn: Some(1.2),
        unplaced: Unplaced::Dropped,
        scheduler: Scheduler { ties: Ties::Random, shortlist: 16 },
    };
    let arrived = AtomicU64::default();
    let told = study(&workload, &settings, &arrived);
    let learned = |restarts_after| {
        let outcomes = study_with(&workload, &settings, &arrived, &|_, cluster| {
            let name = PolicyName::LeastFragmentation;
            let policy = Product::new(name, &workload, cluster, &Target::default(), settings.scheduler);
            Box::new(Learning::new(&workload, Box::new(policy), restarts_after))
        });
        churned(outcomes)
    };
    assert_ne!(churned(told), learned(None));
    assert_ne!(learned(None), learned(Some(100)));
}

#[test]
fn plot_has_a_named_line_per_policy() {
    let workload = trace();
    let settings = Settings {
        policies: vec![Name::BestFit, Name::Packing],
        seeds: vec![1, 2, 3],
        until: 120,
        churn: None,
        unplaced: Unplaced::Dropped,
        scheduler: Scheduler { ties: Ties::Fixed, shortlist: 16 },
    };
    let outcomes = study(&workload, &settings, &AtomicU64::default());
    let report = Report::of(&workload, &settings, &outcomes);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("plot.svg");
    plot::draw(&report, &file).expect("drawn");
    let svg = std::fs::read_to_string(&file).expect("written");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for text in ["best-fit", "packing", "what pods have asked for, % of all GPUs", "allocated, % of all GPUs"] {
        assert!(svg.contains(text), "{text} is missing");
    }
    assert!(plot::draw(&report, Path::new("/nowhere/plot.svg")).is_err());
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

//! How well requests of several cards are linked, by machine and rule: the table of docs/placement.md.

#![allow(clippy::mod_module_files, reason = "bench and test include the study by its path")]

mod study;

use study::{Machine, Name, REQUESTS, study};

/// How many sequences of requests, with these seeds from 1 on.
const SEEDS: u64 = 200;

fn main() {
    let seeds: Vec<u64> = (1..=SEEDS).collect();
    println!("{SEEDS} sequences of {REQUESTS} requests each, seeds 1 to {SEEDS}\n");
    println!(
        "| machine | rule | best of the free, % | best of all, % | regret, % | shortfall, % | 2s left | 4s left |"
    );
    println!("| --- | --- | --: | --: | --: | --: | --: | --: |");
    for machine in Machine::all_known() {
        for rule in Name::ALL {
            let tally = study(&machine, rule, &seeds);
            let [twos, fours] = tally.left();
            println!(
                "| {} | {} | {:.1} | {:.1} | {:.2} | {:.2} | {twos:.2} | {fours:.2} |",
                machine.name,
                rule.as_str(),
                tally.best_now_pct(),
                tally.best_ever_pct(),
                tally.regret_pct(),
                tally.shortfall_pct(),
            );
        }
    }
}

//! `KUBE_BIN_DIR=… cargo test -p divvy-e2e [-- WORDS]`, as root.

mod amounts;
mod bursts;
mod cards;
mod churn;
mod delivery;
mod losses;

use std::process::ExitCode;

use divvy_e2e::runner::{self, Scenario};

use crate::bursts::Victims;

fn main() -> ExitCode {
    runner::main(&[
        Scenario { name: "a hundred pods bound at once all run", run: |c| Box::pin(bursts::a_hundred_pods(c)) },
        Scenario {
            name: "the kubelet is killed while a hundred pods start",
            run: |c| Box::pin(bursts::with_kills(c, Victims::Kubelet)),
        },
        Scenario {
            name: "kubelet and daemon are killed while a hundred pods start",
            run: |c| Box::pin(bursts::with_kills(c, Victims::Both)),
        },
        Scenario { name: "the kubelet's checkpoint is lost", run: |c| Box::pin(losses::checkpoint(c)) },
        Scenario { name: "the API server is away", run: |c| Box::pin(losses::api_server(c)) },
        Scenario { name: "pods and jobs come and go", run: |c| Box::pin(churn::pods_and_jobs(c)) },
        Scenario { name: "cards are given in every way", run: |c| Box::pin(delivery::every_strategy(c)) },
        Scenario { name: "a card is lost and returns", run: |c| Box::pin(cards::lost_and_returned(c)) },
        Scenario { name: "amounts are counted twice", run: |c| Box::pin(amounts::counted_twice(c)) },
    ])
}

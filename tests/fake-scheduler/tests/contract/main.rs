//! What divvy-webhook relies on in a scheduler, asked of the stand-in and, with `KUBE_BIN_DIR`, of kube-scheduler.
//!
//! `cargo test -p fake-scheduler --test contract [-- WORDS]`

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod bindings;
mod cluster;
mod filters;
#[path = "../../../fake-apiserver/tests/contract/server.rs"]
#[allow(dead_code, reason = "the contract of API servers uses more of it")]
mod server;

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use divvy_e2e::contract::{self, Report};
use fake_apiserver::ApiServer;
use futures::FutureExt as _;
use tokio::runtime::Runtime;

use crate::cluster::{Cluster, Servers};
use crate::server::TOKEN;

type Run = for<'a> fn(&'a mut Cluster<'_>) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => { &[$((stringify!($name), |cluster| Box::pin($module::$name(cluster)))),*] };
}

const TESTS: &[(&str, Run)] = tests![
    filters::extender_gets_node_names_and_binds_the_one_it_kept,
    filters::weighted_scores_decide,
    filters::pods_without_managed_resources_are_not_sent,
    filters::refused_pod_names_the_reasons_by_count,
    filters::refused_pod_is_retried_when_a_node_changes,
    filters::failing_filter_is_retried,
    filters::unknown_node_of_a_filter_is_an_error,
    filters::ignorable_extender_is_passed_over,
    filters::ignored_resources_are_not_summed,
    bindings::failing_bind_is_retried,
    bindings::pod_that_was_bound_all_the_same_stays,
];

fn main() -> ExitCode {
    let on_stand_in = |runtime: &Runtime| {
        let server = runtime.block_on(ApiServer::start(&[(TOKEN, "admin")])).expect("it starts");
        run_all("stand-in", runtime, Servers::StandIn(Arc::new(server)))
    };
    let on_real = |runtime: &Runtime, real| run_all("kube-scheduler", runtime, Servers::Real(Box::new(real)));
    contract::suite("kube-scheduler", TESTS.iter().map(|(name, _)| *name), on_stand_in, on_real)
}

/// Runs the tests one after another, each with nodes and a scheduler of its own.
fn run_all(whose: &'static str, runtime: &Runtime, mut servers: Servers) -> bool {
    let mut report = Report::new(whose);
    for (name, run) in TESTS.iter().filter(|(name, _)| contract::is_chosen(name)) {
        report.run(name, runtime, async {
            let mut cluster = Cluster::new(name, &mut servers).await;
            let outcome = AssertUnwindSafe(run(&mut cluster)).catch_unwind().await;
            cluster.end().await; // what a failed test leaves behind would fail the next one
            outcome.unwrap_or_else(|panic| resume_unwind(panic));
        });
    }
    report.finish()
}

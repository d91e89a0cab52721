//! What divvy-node relies on in a kubelet, asked of the stand-in and, with `KUBE_BIN_DIR` and as root, of the real one.
//!
//! `cargo test -p fake-kubelet --test contract [-- WORDS]`

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod allocation;
mod kubelet;
mod lifecycle;
#[path = "../kubelet/plugin.rs"]
#[allow(dead_code, reason = "the stand-in's own tests use more of it")]
mod plugin;
mod real;
mod registration;
mod stand_in;

use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;

use divvy_e2e::contract::{self, Report};
use divvy_e2e::files::{Files, Programs};
use divvy_e2e::network::Network;
use divvy_e2e::{namespace, runner};
use tokio::runtime::Runtime;

use crate::kubelet::{Bench, KubeletUnderTest};

/// A test of the contract.
struct Test {
    name: &'static str,
    /// Whether the plugin wants PreStartContainer, and whether it has a preference.
    options: [bool; 2],
    run: for<'a> fn(&'a mut Bench) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
}

macro_rules! tests {
    ($($module:ident::$name:ident($pre_start:literal, $preferred:literal)),* $(,)?) => {
        &[$(Test {
            name: stringify!($name),
            options: [$pre_start, $preferred],
            run: |bench| Box::pin($module::$name(bench)),
        }),*]
    };
}

const TESTS: &[Test] = tests![
    allocation::full_reuse_draws_at_random_unasked(false, true),
    allocation::partial_reuse_must_be_included(false, true),
    allocation::sidecars_and_apps_keep_their_devices(false, true),
    allocation::preferred_ids_of_the_right_number_are_taken(false, true),
    allocation::too_many_preferred_ids_are_drawn_from(false, true),
    allocation::too_few_preferred_ids_are_topped_up(false, true),
    allocation::allocate_error_fails_the_pod_and_frees_ids(false, false),
    allocation::empty_answer_fails_the_pod_and_leaks_ids(false, false),
    allocation::more_than_there_is_fails_without_a_call(false, true),
    allocation::resources_without_a_plugin_are_ignored(true, true),
    allocation::resources_of_a_container_come_in_either_order(false, false),
    allocation::hanging_allocate_holds_up_later_pods(false, false),
    lifecycle::pre_start_of_several_pods_runs_at_once(true, false),
    lifecycle::failed_pre_start_is_tried_again(true, false),
    lifecycle::init_containers_run_before_the_apps(true, false),
    lifecycle::ids_of_a_dead_pod_return_at_the_next_admission(false, false),
    lifecycle::pod_resources_lists_active_pods_without_init(false, false),
    lifecycle::pod_resources_knows_no_rejected_pod_while_the_next_is_admitted(false, false),
    registration::invalid_registration_is_refused_with_a_reason(false, false),
    registration::each_list_replaces_the_one_before(false, false),
    registration::list_above_4_mib_ends_the_plugin(false, false),
    registration::end_of_stream_fails_new_pods(true, false),
    registration::end_of_an_old_stream_stops_the_new_plugin(false, false),
    registration::restart_deletes_sockets_and_keeps_pods(true, true),
    registration::restart_fails_pods_past_their_init_containers(false, false),
    registration::lost_checkpoint_hands_out_held_ids_again(false, true),
    registration::lost_checkpoint_rejects_more_than_is_allocatable(false, false),
];

fn main() -> ExitCode {
    let passed = match namespace::inner() {
        Some(directory) => {
            namespace::end_with_the_outer_process();
            let files = Files::new(directory);
            run_all("kubelet", |directory| Box::pin(real::Real::start(files.clone(), directory)))
        }
        None if contract::list(names()) => true,
        None => {
            let stand_in = run_all("stand-in", |directory| Box::pin(stand_in::StandIn::start(directory)));
            run_real() && stand_in
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts this program again in namespaces of its own, or says why the real kubelet can't be asked.
fn run_real() -> bool {
    if let Err(reason) = Programs::find().and_then(|_| runner::root()) {
        contract::ignore("kubelet", names(), &reason);
        return true;
    }
    let directory = tempfile::Builder::new().prefix("divvy-contract-").tempdir().expect("a directory for the run");
    let passed = namespace::enter(directory.path(), &Network::LOOPBACK).expect("namespaces").success();
    if !passed {
        println!("logs are in {}", Files::new(directory.keep()).logs().display());
    }
    passed
}

fn names() -> impl Iterator<Item = &'static str> {
    TESTS.iter().map(|test| test.name).filter(|name| contract::is_chosen(name))
}

type Starting<'a> = Pin<Box<dyn Future<Output = Box<dyn KubeletUnderTest>> + 'a>>;

/// Runs the tests one after another, each on a kubelet without pods and plugins.
fn run_all(whose: &'static str, start: impl for<'a> Fn(&'a Path) -> Starting<'a>) -> bool {
    let mut report = Report::new(whose);
    for test in TESTS.iter().filter(|test| contract::is_chosen(test.name)) {
        let directory = tempfile::tempdir().expect("a directory for sockets");
        report.run(test.name, &Runtime::new().expect("a runtime"), async {
            let mut bench = Bench::new(start(directory.path()).await, test.options).await;
            (test.run)(&mut bench).await;
            bench.kubelet.end().await;
        });
    }
    report.finish()
}

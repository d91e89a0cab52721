//! What our programs rely on in an API server, asked of the stand-in and, with `KUBE_BIN_DIR`, of the real one.
//!
//! `cargo test -p fake-apiserver --test contract [-- WORDS]`

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod apply;
mod lists;
mod pods;
mod questions;
mod server;
mod webhooks;
mod writes;

use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use divvy_e2e::contract::{self, RealApiServer, Report};
use fake_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::server::{Bench, TOKEN};

type Run = for<'a> fn(&'a Bench) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => { &[$((stringify!($name), |bench| Box::pin($module::$name(bench)))),*] };
}

const TESTS: &[(&str, Run)] = tests![
    lists::list_version_continues_as_a_watch,
    lists::watch_tells_the_end_of_an_object,
    lists::watch_of_selected_objects_tells_when_they_leave,
    lists::watch_of_one_name_starts_with_it,
    lists::watch_from_an_old_version_expires,
    lists::watch_that_wants_bookmarks_gets_one,
    lists::pages_of_a_list_are_consistent,
    lists::list_items_do_not_name_their_kind,
    writes::second_create_already_exists,
    writes::absent_object_is_not_found,
    writes::replace_of_an_old_version_conflicts,
    writes::lease_is_replaced_with_its_version_alone,
    writes::uid_of_an_object_cannot_change,
    writes::pod_status_patch_writes_annotations_but_no_spec,
    writes::node_status_patch_writes_amounts_and_labels,
    writes::json_patch_fails_with_its_test,
    writes::strategic_patch_merges_conditions_by_type,
    writes::secret_is_kept_in_base64,
    writes::delete_checks_its_preconditions,
    apply::forced_apply_takes_an_endpoint_slice_over,
    apply::apply_conflicts_with_the_fields_owner,
    apply::equal_apply_is_no_write,
    apply::endpoint_slice_with_a_loopback_address_is_invalid,
    apply::gpu_node_status_is_applied_and_pruned,
    apply::apply_of_an_undeclared_field_fails,
    apply::gpu_node_definition_is_served_once_established,
    apply::apply_to_the_status_of_nothing_is_not_found,
    pods::binding_sets_node_annotations_and_condition,
    pods::binding_of_another_uid_conflicts,
    pods::second_binding_conflicts,
    pods::unbound_pod_is_deleted_at_once,
    pods::bound_pod_is_deleted_after_its_grace,
    pods::eviction_deletes_the_pod,
    pods::request_takes_the_limit,
    pods::spec_of_a_pod_cannot_change,
    pods::gates_go_one_by_one_and_never_come,
    pods::ports_of_an_unbound_pod_are_not_forwarded,
    webhooks::mutating_webhook_patches_the_object,
    webhooks::denial_has_the_webhooks_status,
    webhooks::failing_webhook_is_an_error_or_ignored,
    webhooks::conditions_and_selectors_choose_the_objects,
    questions::event_is_found_by_its_object,
    questions::event_with_a_long_note_is_invalid,
    questions::access_reviews_are_answered,
];

fn main() -> ExitCode {
    let on_stand_in = |runtime: &Runtime| {
        let server = Arc::new(runtime.block_on(ApiServer::start(&[(TOKEN, "admin")])).expect("it starts"));
        run_all("stand-in", runtime, &server.kubeconfig(TOKEN), Some(&server))
    };
    let on_real = |runtime: &Runtime, real: RealApiServer| {
        run_all("kube-apiserver", runtime, &real.kubeconfig().expect("it was written"), None)
    };
    contract::suite("kube-apiserver", TESTS.iter().map(|(name, _)| *name), on_stand_in, on_real)
}

/// Runs the tests one after another, each in a namespace of its own.
fn run_all(whose: &'static str, runtime: &Runtime, kubeconfig: &str, stand_in: Option<&Arc<ApiServer>>) -> bool {
    let mut report = Report::new(whose);
    for (name, run) in TESTS.iter().filter(|(name, _)| contract::is_chosen(name)) {
        report.run(name, runtime, async {
            run(&Bench::new(name, kubeconfig, stand_in).await).await;
        });
    }
    report.finish()
}

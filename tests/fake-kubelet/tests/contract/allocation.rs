//! Which IDs a container gets, and what fails a pod.

use std::collections::BTreeSet;

use divvy_api::ContainerKind::{App, Init, Sidecar};
use divvy_proto::deviceplugin as dp;
use divvy_testkit::pods::PodShape;
use tonic::Status;

use crate::kubelet::{Bench, is_running, phase, pod};
use crate::plugin::{Script, TestPlugin, answer, options, slots};

const ONE: &[(&str, &str)] = &[("gpu", "1")];

fn ids<const N: usize>(ids: [&str; N]) -> Vec<String> {
    ids.map(str::to_owned).to_vec()
}

fn set(ids: &[String]) -> BTreeSet<String> {
    ids.iter().cloned().collect()
}

pub(crate) async fn full_reuse_draws_at_random_unasked(bench: &mut Bench) {
    bench.script.prefer(|request| {
        let mut available = request.available_device_ids.clone();
        available.sort();
        available.truncate(4);
        available
    });
    let mut drawn = BTreeSet::new();
    for round in 0..12 {
        let name = format!("reuse-{round}");
        bench.run(&PodShape::new(&name).with(Init, "load", &[("gpu", "4")]).with(App, "main", ONE)).await;
        let (lent, got) = (bench.held(&name, "load").await, bench.held(&name, "main").await);
        assert!(got.is_subset(&lent) && got.len() == 1, "{got:?} out of {lent:?}");
        drawn.extend(got);
        assert_eq!(bench.script.asked.lock().unwrap().len(), round + 1, "asked for the init container alone");
        assert_eq!(bench.script.allocated.borrow().len(), 2 * (round + 1), "allocated again with the same ID");
        bench.gone(&name).await;
    }
    assert!(drawn.len() > 1, "always the same one of four: {drawn:?}");
}

pub(crate) async fn partial_reuse_must_be_included(bench: &mut Bench) {
    bench.run(&PodShape::new("partial").with(Init, "load", ONE).with(App, "main", &[("gpu", "3")])).await;
    let lent = bench.held("partial", "load").await;
    let asked = bench.script.asked.lock().unwrap()[1].clone();
    assert_eq!(set(&asked.must_include_device_ids), lent);
    assert_eq!(asked.allocation_size, 3);
    assert_eq!(set(&asked.available_device_ids), slots(), "free ones and the one taken");
    assert!(lent.is_subset(&bench.held("partial", "main").await));
}

pub(crate) async fn sidecars_and_apps_keep_their_devices(bench: &mut Bench) {
    let shape = PodShape::new("sidecar").with(Sidecar, "log", ONE).with(Init, "load", ONE);
    bench.run(&shape.with(App, "a", ONE).with(App, "b", ONE)).await;
    let mut held = Vec::new();
    for container in ["log", "load", "a", "b"] {
        held.push(bench.held("sidecar", container).await);
    }
    assert_eq!(held[2], held[1], "an init container lends");
    assert_eq!(held.iter().flatten().collect::<BTreeSet<_>>().len(), 3, "the others don't: {held:?}");
}

pub(crate) async fn preferred_ids_of_the_right_number_are_taken(bench: &mut Bench) {
    bench.script.prefer(|_| ids(["GPU-7::3", "GPU-0::1"]));
    bench.run(&pod("exact", "2")).await;
    assert_eq!(bench.held("exact", "main").await, set(&ids(["GPU-7::3", "GPU-0::1"])));
}

pub(crate) async fn too_many_preferred_ids_are_drawn_from(bench: &mut Bench) {
    let preferred = ids(["GPU-1::0", "GPU-2::0", "GPU-3::0", "GPU-4::0"]);
    let wanted = preferred.clone();
    bench.script.prefer(move |_| wanted.clone());
    let mut drawn = BTreeSet::new();
    for round in 0..12 {
        let name = format!("many-{round}");
        bench.run(&pod(&name, "1")).await;
        let held = bench.held(&name, "main").await;
        assert!(held.is_subset(&set(&preferred)));
        drawn.extend(held);
        bench.gone(&name).await;
    }
    assert!(drawn.len() > 1, "always {drawn:?}");
}

pub(crate) async fn too_few_preferred_ids_are_topped_up(bench: &mut Bench) {
    bench.script.prefer(|_| ids(["GPU-5::0"]));
    bench.run(&pod("first", "1")).await;
    bench.script.prefer(|_| ids(["GPU-5::0", "GPU-9::9", "GPU-6::1"]));
    bench.run(&pod("second", "3")).await;
    let held = bench.held("second", "main").await;
    assert_eq!(held.len(), 3);
    assert!(held.contains("GPU-6::1") && held.is_subset(&slots()), "unknown ones are dropped: {held:?}");
    assert!(held.is_disjoint(&bench.held("first", "main").await), "held ones too");
}

pub(crate) async fn allocate_error_fails_the_pod_and_frees_ids(bench: &mut Bench) {
    bench.script.answer(|_| Err(Status::internal("no card fits")));
    let (reason, message) = bench.rejected(&pod("error", "32")).await;
    assert_eq!(reason, "UnexpectedAdmissionError");
    let expected = "Allocate failed due to rpc error: code = Internal desc = no card fits, which is unexpected";
    assert!(message.contains(expected), "{message}");
    assert_eq!(bench.find("error").await.as_ref().map(phase), Some("Failed"), "it stays listed");
    bench.script.answer(|ids| Ok(answer(ids)));
    bench.run(&pod("next", "32")).await;
}

pub(crate) async fn empty_answer_fails_the_pod_and_leaks_ids(bench: &mut Bench) {
    bench.script.answer(|_| Ok(dp::AllocateResponse::default()));
    let (_, message) = bench.rejected(&pod("empty", "32")).await;
    assert!(message.contains("no containers return in allocation response"), "{message}");
    bench.script.answer(|ids| Ok(answer(ids)));
    let (_, message) = bench.rejected(&pod("next", "1")).await;
    assert!(message.contains("Requested: 1, Available: 0"), "{message}");
}

pub(crate) async fn more_than_there_is_fails_without_a_call(bench: &mut Bench) {
    let (_, message) = bench.rejected(&pod("big", "33")).await;
    let expected = "requested number of devices unavailable for nvidia.com/gpu. Requested: 33, Available: 32";
    assert!(message.contains(expected), "{message}");
    assert!(bench.script.asked.lock().unwrap().is_empty() && bench.script.allocated.borrow().is_empty());
}

pub(crate) async fn resources_without_a_plugin_are_ignored(bench: &mut Bench) {
    let amounts = [("gpu", "1"), ("gpumem", "80k"), ("gpucores", "30")];
    bench.run(&PodShape::new("amounts").with(App, "main", &amounts)).await;
    assert_eq!(bench.script.allocated.borrow().len(), 1);
}

pub(crate) async fn resources_of_a_container_come_in_either_order(bench: &mut Bench) {
    let other = Script::new(options(false, false));
    let plugin = TestPlugin::serve(&other, &bench.kubelet.plugin_dir(), "mem.sock");
    plugin.register("nvidia.com/gpumem-256mi").await.expect("a second resource");
    bench.until_healthy(|ids| ids.len() >= slots().len()).await;
    // How many calls the one had when the other was called.
    let (mine, first) = (bench.script.allocated.subscribe(), std::sync::Arc::new(std::sync::Mutex::new(Vec::new())));
    let seen = std::sync::Arc::clone(&first);
    other.answer(move |ids| {
        seen.lock().unwrap().push(mine.borrow().len());
        Ok(answer(ids))
    });
    for round in 0..16 {
        let name = format!("two-{round}");
        let both = [("gpu", "1"), ("gpumem-256mi", "1")];
        bench.run(&PodShape::new(&name).with(App, "main", &both)).await;
    }
    let first = first.lock().unwrap();
    let earlier: BTreeSet<bool> = first.iter().enumerate().map(|(round, count)| *count > round).collect();
    assert_eq!(earlier.len(), 2, "always in the same order: {first:?}");
}

pub(crate) async fn hanging_allocate_holds_up_later_pods(bench: &mut Bench) {
    bench.script.allocates.forget_permits(usize::MAX);
    bench.add(&pod("first", "1")).await;
    bench.script.allocated.subscribe().wait_for(|all| all.len() == 1).await.unwrap();
    bench.add(&PodShape::new("second").with(App, "main", &[])).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!(bench.find("first").await.is_some(), "the pod under admission is shown");
    assert!(bench.find("second").await.is_none(), "the one behind it isn't");
    bench.script.allocates.add_permits(1);
    bench.until_pod("second", |pod| is_running(pod, "main").then_some(())).await;
}

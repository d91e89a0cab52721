//! Which IDs a container gets, and what fails a pod.

use std::collections::BTreeSet;

use divvy_proto::deviceplugin as dp;
use fake_kubelet::{Admission, Method, Phase, Workload};
use tonic::Status;

use crate::plugin::{GPU, Script, TestPlugin, answer, options, slots};
use crate::{Bench, gpus, pod};

fn ids<const N: usize>(ids: [&str; N]) -> Vec<String> {
    ids.map(str::to_owned).to_vec()
}

fn set(ids: &[String]) -> BTreeSet<String> {
    ids.iter().cloned().collect()
}

#[tokio::test]
async fn a_full_reuse_draws_at_random_and_skips_the_question() {
    let bench = Bench::new(options(false, true)).await;
    let first_slots = |request: &dp::ContainerPreferredAllocationRequest| {
        let mut available = request.available_device_ids.clone();
        available.sort();
        available.truncate(4);
        available
    };
    bench.script.prefer(first_slots);
    let mut drawn = BTreeSet::new();
    for round in 0..12 {
        let uid = bench.admit(Workload::new("reuse").init("load", &gpus("4")).app("main", &gpus("1"))).await;
        let (lent, got) = (bench.held(&uid, "load"), bench.held(&uid, "main"));
        assert!(got.is_subset(&lent) && got.len() == 1, "{got:?} out of {lent:?}");
        drawn.extend(got);
        assert_eq!(bench.script.asked.lock().unwrap().len(), round + 1, "asked for the init container alone");
        assert_eq!(bench.script.allocated.borrow().len(), 2 * (round + 1), "allocated again with the same ID");
        bench.kubelet.delete(&uid).unwrap();
        bench.gone(&uid).await;
    }
    assert!(drawn.len() > 1, "always the same one of four: {drawn:?}");
}

#[tokio::test]
async fn a_partial_reuse_must_be_included() {
    let bench = Bench::new(options(false, true)).await;
    let uid = bench.admit(Workload::new("partial").init("load", &gpus("1")).app("main", &gpus("3"))).await;
    let lent = bench.held(&uid, "load");
    let asked = bench.script.asked.lock().unwrap()[1].clone();
    assert_eq!(set(&asked.must_include_device_ids), lent);
    assert_eq!(asked.allocation_size, 3);
    assert_eq!(set(&asked.available_device_ids), slots(), "free ones and the one taken");
    assert!(lent.is_subset(&bench.held(&uid, "main")));
}

#[tokio::test]
async fn sidecars_and_apps_keep_what_they_have() {
    let bench = Bench::new(options(false, true)).await;
    let pod = Workload::new("sidecar").sidecar("log", &gpus("1")).init("load", &gpus("1")).app("a", &gpus("1"));
    let uid = bench.admit(pod.app("b", &gpus("1"))).await;
    let [log, load, a, b] = ["log", "load", "a", "b"].map(|name| bench.held(&uid, name));
    assert_eq!(a, load, "an init container lends");
    assert_eq!(log.union(&a).chain(&b).collect::<BTreeSet<_>>().len(), 3, "the others don't: {log:?} {a:?} {b:?}");
}

#[tokio::test]
async fn the_exact_number_of_preferred_ids_is_honoured() {
    let bench = Bench::new(options(false, true)).await;
    bench.script.prefer(|_| ids(["GPU-7::3", "GPU-0::1"]));
    let uid = bench.admit(pod("exact", "2")).await;
    assert_eq!(bench.held(&uid, "main"), set(&ids(["GPU-7::3", "GPU-0::1"])));
}

#[tokio::test]
async fn of_too_many_preferred_ids_a_random_part_is_taken() {
    let bench = Bench::new(options(false, true)).await;
    let preferred = ids(["GPU-1::0", "GPU-2::0", "GPU-3::0", "GPU-4::0"]);
    let wanted = preferred.clone();
    bench.script.prefer(move |_| wanted.clone());
    let mut drawn = BTreeSet::new();
    for _ in 0..12 {
        let uid = bench.admit(pod("many", "1")).await;
        let held = bench.held(&uid, "main");
        assert!(held.is_subset(&set(&preferred)));
        drawn.extend(held);
        bench.kubelet.delete(&uid).unwrap();
        bench.gone(&uid).await;
    }
    assert!(drawn.len() > 1, "always {drawn:?}");
}

#[tokio::test]
async fn too_few_preferred_ids_are_topped_up_and_unknown_or_held_ones_dropped() {
    let bench = Bench::new(options(false, true)).await;
    bench.script.prefer(|_| ids(["GPU-5::0"]));
    let first = bench.admit(pod("first", "1")).await;
    bench.script.prefer(|_| ids(["GPU-5::0", "GPU-9::9", "GPU-6::1"]));
    let second = bench.admit(pod("second", "3")).await;
    let held = bench.held(&second, "main");
    assert_eq!(held.len(), 3);
    assert!(held.contains("GPU-6::1") && held.is_subset(&slots()));
    assert!(held.is_disjoint(&bench.held(&first, "main")));
}

#[tokio::test]
async fn an_error_fails_the_pod_for_good_and_frees_its_ids() {
    let bench = Bench::new(options(false, false)).await;
    bench.script.answer(|_| Err(Status::internal("no card fits")));
    let (reason, message) = bench.rejected(pod("error", "32")).await;
    assert_eq!(reason, "UnexpectedAdmissionError");
    let expected = "Allocate failed due to rpc error: code = Internal desc = no card fits, which is unexpected";
    assert_eq!(message, expected);
    let view = bench.kubelet.view();
    let (uid, failed) = view.pods.first_key_value().expect("the pod is there");
    assert!(failed.listed && failed.phase == Phase::Failed);
    bench.script.answer(|ids| Ok(answer(ids)));
    bench.admit(pod("next", "32")).await;
    bench.kubelet.delete(uid).unwrap();
    bench.gone(uid).await;
}

#[tokio::test]
async fn an_answer_without_containers_fails_the_pod_and_leaks_its_ids_until_a_recount() {
    let bench = Bench::new(options(false, false)).await;
    bench.script.answer(|_| Ok(dp::AllocateResponse::default()));
    let (_, message) = bench.rejected(pod("empty", "32")).await;
    assert!(message.contains("no containers return in allocation response"), "{message}");
    bench.script.answer(|ids| Ok(answer(ids)));
    let (_, message) = bench.rejected(pod("next", "1")).await;
    assert!(message.contains("Requested: 1, Available: 0"), "{message}");
}

#[tokio::test]
async fn more_than_there_is_is_refused_without_a_call() {
    let bench = Bench::new(options(false, true)).await;
    let (_, message) = bench.rejected(pod("big", "33")).await;
    assert!(
        message.contains("requested number of devices unavailable for nvidia.com/gpu. Requested: 33, Available: 32")
    );
    assert!(bench.kubelet.calls().is_empty());
}

#[tokio::test]
async fn amounts_that_no_plugin_registered_are_ignored() {
    let bench = Bench::new(options(true, true)).await;
    let amounts = [(GPU, "1"), ("nvidia.com/gpumem", "80k"), ("nvidia.com/gpucores", "30"), ("cpu", "500m")];
    let uid = bench.admit(Workload::new("amounts").app("main", &amounts)).await;
    bench.running(&uid).await;
    assert!(bench.kubelet.calls().iter().all(|call| call.resource == GPU));
}

#[tokio::test]
async fn the_resources_of_a_container_come_in_either_order() {
    let bench = Bench::new(options(false, false)).await;
    let other = Script::new(options(false, false));
    let plugin = TestPlugin::serve(&other, bench.kubelet.plugin_dir(), "mem.sock");
    plugin.register("nvidia.com/gpumem-256mi").await.expect("a second resource");
    let both = |view: &fake_kubelet::KubeletView| view.registrations.len() == 2;
    bench.until("both plugins", both).await;
    for _ in 0..16 {
        bench.admit(Workload::new("two").app("main", &[(GPU, "1"), ("nvidia.com/gpumem-256mi", "1")])).await;
    }
    let calls = bench.kubelet.calls();
    let allocates: Vec<_> = calls.iter().filter(|call| call.method == Method::Allocate).collect();
    let first: BTreeSet<_> = allocates.chunks(2).map(|pair| pair[0].resource.as_str()).collect();
    assert_eq!(first.len(), 2, "always the same one first");
}

#[tokio::test]
async fn a_hanging_allocate_holds_up_every_other_pod() {
    let bench = Bench::new(options(false, false)).await;
    bench.script.allocates.forget_permits(usize::MAX);
    let first = bench.kubelet.add_pod(pod("first", "1").pod()).unwrap();
    let second = bench.kubelet.add_pod(Workload::new("second").app("main", &[]).pod()).unwrap();
    bench.script.allocated.subscribe().wait_for(|all| all.len() == 1).await.unwrap();
    let view = bench.kubelet.view();
    assert!(view.pods[&first].listed, "the pod under admission is shown");
    assert!(!view.pods[&second].listed, "the one behind it isn't");
    bench.script.allocates.add_permits(1);
    assert_eq!(bench.kubelet.admitted(&second).await, Ok(Admission::Admitted));
}

#[tokio::test]
async fn a_later_admit_handler_may_reject_a_pod_that_has_devices() {
    let bench = Bench::new(options(false, false)).await;
    bench.kubelet.set_faults(|faults| faults.reject_after_allocate = 1.0);
    let (reason, _) = bench.rejected(pod("unlucky", "1")).await;
    assert_eq!(reason, "OutOfcpu");
    assert_eq!(bench.script.allocated.borrow().len(), 1, "the plugin was asked before");
}

#[tokio::test]
async fn amounts_beyond_the_nodes_are_refused_after_the_devices_were_allocated() {
    let bench = Bench::new(options(false, false)).await;
    bench.kubelet.set_allocatable("nvidia.com/gpumem", Some(80_000));
    let share = |name: &str, amount| Workload::new(name).app("main", &[(GPU, "1"), ("nvidia.com/gpumem", amount)]);
    let first = bench.admit(share("first", "50k")).await;
    let (reason, message) = bench.rejected(share("second", "50000")).await;
    assert_eq!(reason, "OutOfnvidia.com/gpumem");
    assert!(message.contains("requested: 50000, used: 50000, capacity: 80000"), "{message}");
    assert_eq!(bench.script.allocated.borrow().len(), 2);
    bench.kubelet.finish(&first, true).unwrap();
    bench.admit(share("third", "80000")).await;
}

#[tokio::test]
async fn the_fault_hands_out_ids_that_live_pods_hold() {
    let bench = Bench::new(options(false, true)).await;
    let first = bench.admit(pod("first", "2")).await;
    bench.running(&first).await;
    bench.kubelet.set_faults(|faults| faults.hand_out_twice = 1.0);
    let second = bench.admit(pod("second", "2")).await;
    assert_eq!(bench.held(&second, "main"), bench.held(&first, "main"));
}

#[tokio::test]
async fn the_same_seed_gives_the_same_ids() {
    let mut runs = Vec::new();
    for seed in [7, 7, 8] {
        let bench = Bench::seeded(options(false, false), seed).await;
        let mut held = Vec::new();
        for _ in 0..8 {
            let uid = bench.admit(pod("same", "2")).await;
            held.push(bench.held(&uid, "main"));
        }
        runs.push(held);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

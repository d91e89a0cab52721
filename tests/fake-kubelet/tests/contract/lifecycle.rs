//! Starts and ends of pods, and what becomes of their IDs.

use divvy_api::ContainerKind::{App, Init, Sidecar};
use divvy_proto::podresources as pr;
use divvy_proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use divvy_testkit::pods::PodShape;
use tonic::Status;

use crate::kubelet::{Bench, is_running, pod, waits};
use crate::plugin::unix;

const ONE: &[(&str, &str)] = &[("gpu", "1")];

pub(crate) async fn pre_start_of_several_pods_runs_at_once(bench: &mut Bench) {
    bench.script.pre_starts.forget_permits(usize::MAX);
    for name in ["a", "b", "c"] {
        bench.add(&pod(name, "1")).await;
    }
    let waiting = bench.script.pre_started.subscribe().wait_for(|all| all.len() == 3).await.map(|all| all.len());
    assert_eq!(waiting.ok(), Some(3), "three are in flight and none is answered");
    bench.script.pre_starts.add_permits(16);
}

pub(crate) async fn failed_pre_start_is_tried_again(bench: &mut Bench) {
    *bench.script.pre_start.lock().unwrap() = Err(Status::unavailable("not yet"));
    bench.add(&pod("patient", "1")).await;
    let (reason, _) =
        bench.until_pod("patient", |pod| waits(pod, "main").filter(|(_, message)| message.contains("not yet"))).await;
    assert_eq!(reason, "CreateContainerConfigError");
    *bench.script.pre_start.lock().unwrap() = Ok(());
    bench.until_pod("patient", |pod| is_running(pod, "main").then_some(())).await;
    assert_eq!(bench.script.allocated.borrow().len(), 1);
    assert!(bench.script.pre_started.borrow().len() > 1);
}

pub(crate) async fn init_containers_run_before_the_apps(bench: &mut Bench) {
    let shape = PodShape::new("steps").with(Init, "one", ONE).with(Sidecar, "log", &[]).with(Init, "two", ONE);
    bench.run(&shape.with(App, "main", ONE)).await;
    let pod = bench.find("steps").await.expect("listed");
    assert_eq!(["one", "log", "two", "main"].map(|name| is_running(&pod, name)), [false, true, false, true]);
    assert_eq!(bench.script.pre_started.borrow().len(), 3, "one for each container with devices");
}

pub(crate) async fn ids_of_a_dead_pod_return_at_the_next_admission(bench: &mut Bench) {
    bench.run(&pod("dead", "32")).await;
    let uid = bench.find("dead").await.and_then(|pod| pod.metadata.uid).expect("listed");
    bench.gone("dead").await;
    assert!(bench.holders().contains(&uid), "nobody swept");
    bench.run(&PodShape::new("without").with(App, "main", &[])).await;
    assert!(bench.holders().contains(&uid), "a container without a plugin resource sweeps nothing");
    bench.run(&pod("next", "32")).await;
    assert!(!bench.holders().contains(&uid));
}

pub(crate) async fn pod_resources_lists_active_pods_without_init(bench: &mut Bench) {
    let shape = PodShape::new("worker").with(Init, "load", ONE).with(Sidecar, "log", ONE);
    bench.run(&shape.with(App, "main", &[("gpu", "2")])).await;
    bench.rejected(&pod("big", "33")).await;
    let mut lister = PodResourcesListerClient::new(unix(bench.kubelet.pod_resources_socket()).await);
    let list = lister.list(pr::ListPodResourcesRequest {}).await.unwrap().into_inner().pod_resources;
    let [shown] = &list[..] else { panic!("rejected pods are not active: {list:?}") };
    assert_eq!(shown.containers.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["log", "main"]);
    let ids = shown.containers[1].devices.iter().flat_map(|entry| entry.device_ids.clone());
    assert_eq!(ids.collect::<std::collections::BTreeSet<_>>(), bench.held("worker", "main").await);
    assert!(shown.containers[1].devices.iter().all(|entry| entry.device_ids.len() == 1), "one entry an ID");
}

pub(crate) async fn pod_resources_knows_no_rejected_pod_while_the_next_is_admitted(bench: &mut Bench) {
    let (reason, _) = bench.rejected(&pod("rejected", "1").with_sysctl("kernel.msgmax", "65536")).await;
    assert_eq!(reason, "SysctlForbidden");
    assert!(bench.script.allocated.borrow().is_empty(), "the plugin wasn't asked");
    bench.script.allocates.forget_permits(usize::MAX);
    bench.add(&pod("next", "1")).await;
    bench.script.allocated.subscribe().wait_for(|all| all.len() == 1).await.unwrap();
    let mut lister = PodResourcesListerClient::new(unix(bench.kubelet.pod_resources_socket()).await);
    let mut found = Vec::new();
    for name in ["rejected", "next"] {
        assert!(bench.find(name).await.is_some(), "{name} is listed");
        let pod_name = bench.kubelet.own_name(name);
        let answer = lister.get(pr::GetPodResourcesRequest { pod_name, pod_namespace: "default".to_owned() }).await;
        found.push(answer.map(|answer| answer.into_inner().pod_resources.unwrap_or_default()));
    }
    let minor = bench.kubelet.minor_version();
    if minor < 34 {
        println!("  not on Kubernetes 1.{minor}: PodResources has no Get");
        let is_off = |answer: &Result<_, Status>| {
            answer.as_ref().is_err_and(|status| status.message().contains("Get method disabled"))
        };
        assert!(found.iter().all(is_off), "{found:?}");
    } else {
        let unknown = found[0].as_ref().expect_err("the kubelet has given it up");
        assert!(unknown.message().contains("not found"), "{unknown:?}");
        let next = found[1].as_ref().expect("the kubelet has it while it is admitted");
        assert!(next.containers.iter().all(|container| container.devices.is_empty()), "{next:?}");
    }
    bench.script.allocates.add_permits(1);
    bench.until_pod("next", |pod| is_running(pod, "main").then_some(())).await;
}

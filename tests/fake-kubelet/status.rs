//! A pod as `/pods` shows it: the API server's object with this kubelet's status.

use jiff::Timestamp;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use divvy_api::ContainerKind;

use super::pods::{Container, ContainerState, Phase, Pod};

/// `kubetypes.ConfigFirstSeenAnnotationKey`, which the API server never gets to see.
const SEEN: &str = "kubernetes.io/config.seen";
const HOST_IP: &str = "127.0.0.1";

/// The object to be listed.
pub(crate) fn render(pod: &Pod) -> v1::Pod {
    let mut object = pod.object.clone();
    let seen = (SEEN.to_owned(), pod.started.to_string());
    object.metadata.annotations.get_or_insert_default().extend([seen]);
    if let Some(deleted) = pod.deleted {
        object.metadata.deletion_timestamp = Some(Time(deleted));
        object.metadata.deletion_grace_period_seconds = Some(30);
    }
    // As the API server has it from before the admission.
    let unheard = || v1::PodStatus { phase: Some(Phase::Pending.as_str().to_owned()), ..v1::PodStatus::default() };
    object.status = Some(if pod.unheard { unheard() } else { status(pod) });
    object
}

/// What this kubelet says of it.
pub(crate) fn status(pod: &Pod) -> v1::PodStatus {
    let phase = pod.phase();
    let common = v1::PodStatus {
        phase: Some(phase.as_str().to_owned()),
        reason: pod.failure.as_ref().map(|failure| failure.reason.clone()),
        message: pod.failure.as_ref().map(|failure| failure.message.clone()),
        start_time: Some(Time(pod.started)),
        ..v1::PodStatus::default()
    };
    // A rejected pod never gets further than this.
    if pod.failure.is_some() && pod.containers.iter().all(|container| container.starts == 0) {
        return common;
    }
    let statuses = |app: bool| {
        let mine = pod.containers.iter().filter(move |container| (container.spec.kind == ContainerKind::App) == app);
        let statuses: Vec<_> = mine.map(container_status).collect();
        (!statuses.is_empty()).then_some(statuses)
    };
    v1::PodStatus {
        host_ip: Some(HOST_IP.to_owned()),
        host_ips: Some(vec![v1::HostIP { ip: HOST_IP.to_owned() }]),
        qos_class: Some("BestEffort".to_owned()),
        conditions: Some(conditions(pod, phase)),
        init_container_statuses: statuses(false),
        container_statuses: statuses(true),
        ..common
    }
}

fn conditions(pod: &Pod, phase: Phase) -> Vec<v1::PodCondition> {
    let ready = phase == Phase::Running;
    let initialized = ready || phase == Phase::Succeeded;
    let condition = |(type_, holds): (&str, bool)| v1::PodCondition {
        type_: type_.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        last_transition_time: Some(Time(pod.started)),
        ..v1::PodCondition::default()
    };
    let all = [
        ("PodReadyToStartContainers", true),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", ready),
        ("PodScheduled", true),
    ];
    all.map(condition).into()
}

fn container_status(container: &Container) -> v1::ContainerStatus {
    let running = container.state.is_running();
    let id = || format!("containerd://{:064x}", u128::from(container.starts) << 64 | container.spec.name.len() as u128);
    v1::ContainerStatus {
        name: container.spec.name.clone(),
        image: "registry.example/work:1".to_owned(),
        container_id: (container.starts > 0).then(id),
        ready: running,
        started: Some(running),
        restart_count: i32::try_from(container.starts.saturating_sub(1)).unwrap_or(i32::MAX),
        state: Some(state(&container.state)),
        ..v1::ContainerStatus::default()
    }
}

fn state(state: &ContainerState) -> v1::ContainerState {
    let time = |at: &Timestamp| Some(Time(*at));
    let mut rendered = v1::ContainerState::default();
    match state {
        ContainerState::Waiting { reason, message } => {
            let message = Some(message.clone()).filter(|message| !message.is_empty());
            rendered.waiting = Some(v1::ContainerStateWaiting { reason: Some((*reason).to_owned()), message });
        }
        ContainerState::Running { since } => {
            rendered.running = Some(v1::ContainerStateRunning { started_at: time(since) });
        }
        ContainerState::Terminated { exit_code, started, finished } => {
            let reason = if *exit_code == 0 { "Completed" } else { "Error" };
            rendered.terminated = Some(v1::ContainerStateTerminated {
                exit_code: *exit_code,
                reason: Some(reason.to_owned()),
                started_at: started.as_ref().and_then(time),
                finished_at: time(finished),
                ..v1::ContainerStateTerminated::default()
            });
        }
    }
    rendered
}

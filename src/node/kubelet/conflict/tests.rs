use std::os::unix::net::UnixListener;

use super::*;

const CARD: &str = "GPU-1d97f3a2-0b5e-4f7e-9a53-1c6a3d2f8e11";

fn ours() -> [Offer; 1] {
    let device = |number, health: &str| api::Device {
        id: format!("{CARD}::{number}"),
        health: health.to_owned(),
        topology: None,
    };
    let devices = vec![device(0, api::HEALTHY), device(1, api::HEALTHY), device(2, api::UNHEALTHY)];
    [Offer { resource: "nvidia.com/gpu".parse().expect("a resource"), devices }]
}

fn seen(listed: &[(&str, &str)], registered: bool) -> Option<(bool, String)> {
    let listed: Vec<Listed> = listed
        .iter()
        .map(|(resource, device)| Listed { resource: (*resource).to_owned(), device: device.replace("CARD", CARD) })
        .collect();
    let plugin = find(&listed, &ours(), registered)?;
    Some((plugin.same_resource, plugin.evidence.replace(CARD, "CARD")))
}

#[test]
fn conflicting_plugin_is_found_in_allocatable_devices() {
    let evidence = |listed, registered| seen(listed, registered).map(|(_, evidence)| evidence).unwrap_or_default();
    insta::assert_snapshot!(evidence(&[("nvidia.com/gpu", "CARD")], true), @"another device plugin serves nvidia.com/gpu, with devices such as CARD");
    insta::assert_snapshot!(evidence(&[("nvidia.com/gpu", "CARD::0")], false), @"another device plugin serves nvidia.com/gpu, with devices such as CARD::0");
    insta::assert_snapshot!(evidence(&[("nvidia.com/gpu", "CARD::0")], true), @"another device plugin serves nvidia.com/gpu, with 1 devices instead of Divvy's 2");
    insta::assert_snapshot!(evidence(&[("aliyun.com/gpu-mem", "CARD-_-0")], true), @"another device plugin offers this node's GPUs as aliyun.com/gpu-mem, with devices such as CARD-_-0");
    assert_eq!(seen(&[("aliyun.com/gpu-mem", "CARD-_-0")], true).map(|(same, _)| same), Some(false));
    insta::assert_snapshot!(evidence(&[("nano-gpu/gpu-percent", "nano-0-12")], true), @"another device plugin offers this node's GPUs as nano-gpu/gpu-percent, with devices such as nano-0-12");
    assert_eq!(seen(&[("nvidia.com/gpu", "GPU-0")], true).map(|(same, _)| same), Some(true));
}

#[test]
fn plugin_of_another_resource_is_no_conflict() {
    let others = [("rdma/hca", "mlx5_0"), ("intel.com/fpga", "0000:17:00.0"), ("nvidia.com/gpu", "GPU-0")];
    assert_eq!(seen(&others[..2], true), None);
    assert_eq!(seen(&others[..2], false), None);
    let own = [("nvidia.com/gpu", "CARD::0"), ("nvidia.com/gpu", "CARD::1")];
    assert_eq!(seen(&own, true), None, "what we list ourselves");
    assert_eq!(seen(&[], true), None, "a kubelet that has no list of ours yet");
}

#[test]
fn conflict_is_confirmed_and_cleared_after_patience() {
    let (start, patience) = (Instant::now(), Duration::from_secs(10));
    let plugin = ConflictingPlugin { same_resource: true, evidence: "seen".to_owned() };
    let mut conflicts = ConflictTracker::new(patience);
    let mut at = |seconds, seen: bool| {
        conflicts.observe(start + Duration::from_secs(seconds), seen.then(|| plugin.clone()));
        conflicts.verdict().clone()
    };
    assert_eq!(at(0, true), Verdict::Suspected);
    assert_eq!(at(5, false), Verdict::None, "it was a moment only");
    assert_eq!(at(6, true), Verdict::Suspected, "and time starts anew");
    assert_eq!(at(15, true), Verdict::Suspected);
    assert_eq!(at(16, true), Verdict::Confirmed(plugin.clone()));
    assert_eq!(at(20, false), Verdict::Confirmed(plugin.clone()));
    assert_eq!(at(25, true), Verdict::Confirmed(plugin.clone()), "the kubelet has restarted, and it is back");
    assert_eq!(at(26, false), Verdict::Confirmed(plugin.clone()));
    assert_eq!(at(36, false), Verdict::None);
}

#[tokio::test]
async fn only_listening_sockets_are_conflicts() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    drop(UnixListener::bind(path("dead.sock")).expect("a socket"));
    let _alive = [UnixListener::bind(path("nvidia-gpu.sock")), UnixListener::bind(path("kubelet.sock"))];
    fs::write(path("kubelet_internal_checkpoint"), "{}").expect("a file");
    let listening = listening(directory.path(), &["kubelet.sock".to_owned()]).await;
    assert_eq!(listening.len(), 1, "{listening:?}");
    let process = format!("nvidia-gpu.sock (process {}: ", std::process::id());
    assert!(listening[0].starts_with(&process), "{listening:?}");
}

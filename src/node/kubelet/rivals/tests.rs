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
    let rival = find(&listed, &ours(), registered)?;
    Some((rival.same_resource, rival.evidence.replace(CARD, "CARD")))
}

#[test]
fn a_plugin_is_told_by_what_the_kubelet_lists_of_it() {
    let evidence = |listed, registered| seen(listed, registered).map(|(_, evidence)| evidence).unwrap_or_default();
    insta::assert_snapshot!(evidence(&[("nvidia.com/gpu", "CARD")], true), @"another device plugin serves nvidia.com/gpu, with devices such as CARD");
    insta::assert_snapshot!(evidence(&[("nvidia.com/gpu", "CARD::0")], false), @"another device plugin serves nvidia.com/gpu, with devices such as CARD::0");
    insta::assert_snapshot!(evidence(&[("nvidia.com/gpu", "CARD::0")], true), @"another device plugin serves nvidia.com/gpu, with 1 devices for our 2");
    insta::assert_snapshot!(evidence(&[("aliyun.com/gpu-mem", "CARD-_-0")], true), @"another device plugin offers our cards as aliyun.com/gpu-mem, such as CARD-_-0");
    assert_eq!(seen(&[("aliyun.com/gpu-mem", "CARD-_-0")], true).map(|(same, _)| same), Some(false));
    assert_eq!(seen(&[("nvidia.com/gpu", "GPU-0")], true).map(|(same, _)| same), Some(true));
}

#[test]
fn plugins_of_other_devices_are_no_rivals() {
    let others = [("rdma/hca", "mlx5_0"), ("intel.com/fpga", "0000:17:00.0"), ("nvidia.com/gpu", "GPU-0")];
    assert_eq!(seen(&others[..2], true), None);
    assert_eq!(seen(&others[..2], false), None);
    let own = [("nvidia.com/gpu", "CARD::0"), ("nvidia.com/gpu", "CARD::1")];
    assert_eq!(seen(&own, true), None, "what we list ourselves");
    assert_eq!(seen(&[], true), None, "a kubelet that has no list of ours yet");
}

#[test]
fn evidence_counts_once_it_lasts_and_is_over_once_it_stays_away() {
    let (start, patience) = (Instant::now(), Duration::from_secs(10));
    let rival = Rival { same_resource: true, evidence: "seen".to_owned() };
    let mut rivalry = Rivalry::new(patience);
    let mut at = |seconds, seen: bool| {
        rivalry.observe(start + Duration::from_secs(seconds), seen.then(|| rival.clone()));
        rivalry.verdict().clone()
    };
    assert_eq!(at(0, true), Verdict::Perhaps);
    assert_eq!(at(5, false), Verdict::Nobody, "it was a moment only");
    assert_eq!(at(6, true), Verdict::Perhaps, "and time starts anew");
    assert_eq!(at(15, true), Verdict::Perhaps);
    assert_eq!(at(16, true), Verdict::Somebody(rival.clone()));
    assert_eq!(at(20, false), Verdict::Somebody(rival.clone()));
    assert_eq!(at(25, true), Verdict::Somebody(rival.clone()), "the kubelet has restarted, and it is back");
    assert_eq!(at(26, false), Verdict::Somebody(rival.clone()));
    assert_eq!(at(36, false), Verdict::Nobody);
}

#[tokio::test]
async fn only_sockets_that_somebody_listens_on_are_named() {
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

//! Shares over deaths of the daemon and of the kubelet.

use std::fs;
use std::time::Duration;

use divvy_testkit::pods::GPU;
use fake_kubelet::{ContainerState, Phase, PodsFault, RestartOptions};
use fake_nvml::CardState;
use serde_json::json;

use crate::bench::{Bench, MEMORY, Stderr, part, pod};

#[tokio::test]
async fn killed_daemon_keeps_all_shares_and_fits_new_pods() {
    let mut bench = Bench::new().await;
    let most = (MEMORY * 3 / 4).to_string();
    let first = bench.run(part(&most)).await;
    let second = bench.run(part(&most)).await;
    let given = [bench.given(&first), bench.given(&second)];
    assert_ne!(given[0], given[1], "each on a card of its own");
    bench.killed(|_| {}).await;
    bench.until_booked(&[MEMORY * 3 / 4; 2]).await;
    assert_eq!([bench.given(&first), bench.given(&second)], given);
    let message = bench.refused(part(&most)).await;
    assert!(message.contains("short of memory, largest free 4Gi"), "{message}");
    bench.run(part("4096")).await;
    bench.gone(&first).await;
    bench.until_booked(&[MEMORY * 3 / 4, 4096]).await;
}

#[tokio::test]
async fn lost_journal_is_restored_from_kubelet_and_limits_files() {
    let mut bench = Bench::new().await;
    let (part_of, whole) = (bench.run(part("1000")).await, bench.run(pod(&[(GPU, "1")])).await);
    let given = [bench.given(&part_of), bench.given(&whole)];
    bench.killed(|bench| fs::remove_file(bench.journal()).unwrap()).await;
    bench.until_booked(&[1000, MEMORY]).await;
    for uid in [&part_of, &whole] {
        bench.kubelet.restart_container(uid, "main").unwrap();
        bench.until("another start", |view| view.pods[uid].containers[0].starts == 2).await;
    }
    assert_eq!([bench.given(&part_of), bench.given(&whole)], given);
    let message = bench.refused(pod(&[(GPU, "1")])).await;
    assert!(message.contains("1 in use by other pods"), "{message}");
}

#[tokio::test]
async fn share_on_gpu_unknown_at_recovery_holds_it_alone() {
    let mut bench = Bench::new().await;
    let holder = bench.run(part("1000")).await;
    let (away, _) = bench.given(&holder)[0].clone();
    bench.kill().await;
    bench.change_scenario(|scenario| scenario.card_mut(&away).unwrap().state = CardState::Gone);
    let before = bench.kubelet.view().registrations.len();
    fs::remove_file(bench.journal()).unwrap();
    bench.start(Stderr::Log).await;
    bench.registered(before).await;
    bench.until_said(&format!("holds {away} exclusively, as that isn't known yet")).await;
    bench.change_scenario(|scenario| scenario.card_mut(&away).unwrap().state = CardState::Present);
    bench.ready().await;
    bench.until_booked(&[1000]).await;
    let rest = bench.run(part(&(MEMORY - 1000).to_string())).await;
    let whole = bench.run(pod(&[(GPU, "1")])).await;
    assert_eq!(bench.given(&rest), [(away.clone(), MEMORY - 1000)]);
    assert_ne!(bench.given(&whole)[0].0, away);
    bench.refused(part("100")).await;
}

#[tokio::test]
async fn pod_lost_by_the_ledger_is_restored_at_its_start() {
    // Where cgroups are seen they keep the share.
    let bench = Bench::with(json!({"cgroupRoot": "/nowhere"})).await;
    bench.run(part("500")).await;
    let uid = bench.run(part("1000")).await;
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::WithoutTheLast);
    bench.until_booked(&[500]).await;
    bench.kubelet.set_faults(|faults| faults.pods = PodsFault::None);
    bench.kubelet.restart_container(&uid, "main").unwrap();
    bench.until("another start", |view| view.pods[&uid].containers[0].starts == 2).await;
    bench.until_booked(&[500, 1000]).await;
}

#[tokio::test]
async fn damaged_journal_is_reported_and_repaired() {
    let mut bench = Bench::new().await;
    bench.run(part("1000")).await;
    bench.run(part("2000")).await;
    bench
        .killed(|bench| {
            let mut bytes = fs::read(bench.journal()).unwrap();
            let at = bytes.windows(9).position(|window| window == b"\"memoryMi").unwrap();
            bytes[at] ^= 0xff;
            fs::write(bench.journal(), bytes).unwrap();
        })
        .await;
    bench.until_said("its checksum differs: skipped, see journal.damaged").await;
    bench.until_said("restored from the kubelet's records").await;
    bench.until_booked(&[1000, 2000]).await;
    assert!(bench.path("state/journal.damaged").exists());
}

#[tokio::test]
async fn rollback_keeps_records_and_limits_of_a_newer_version() {
    let mut bench = Bench::new().await;
    let unreadable = bench.run(part("1000")).await;
    let readable = bench.run(part("2000")).await;
    let containers = bench.path("run/containers");
    let limits = || -> std::collections::BTreeMap<_, _> {
        let entries = fs::read_dir(&containers).unwrap().map(|entry| entry.unwrap().path().join("limits/limits"));
        entries.map(|file| (file.clone(), fs::read_to_string(file).unwrap())).collect()
    };
    let newer = |text: &str| text.replace("divvy-limits v1", "divvy-limits v2");
    let mut record = String::new();
    bench
        .killed(|bench| {
            let lines = fs::read_to_string(bench.journal()).unwrap();
            let journal = lines.split('\n').map(|line| {
                let Some((_, json)) = line.split_once(' ').filter(|_| line.contains("\"memoryMi\":1000,")) else {
                    return line.to_owned();
                };
                let json = json.replace("\"origin\":\"allocated\"", "\"origin\":\"lent\"");
                record = format!("{:08x} {json}", crc32fast::hash(json.as_bytes()));
                record.clone()
            });
            fs::write(bench.journal(), journal.collect::<Vec<_>>().join("\n")).unwrap();
            for (file, text) in limits() {
                fs::write(file, newer(&text)).unwrap();
            }
        })
        .await;
    bench.until_said("kept for the newer version that wrote it").await;
    bench.until_booked(&[1000, 2000]).await;
    assert_eq!(limits().len(), 2);
    assert!(limits().values().all(|text| *text == newer(text)), "{:?}", limits());
    assert!(fs::read_to_string(bench.journal()).unwrap().contains(&record));
    for uid in [&unreadable, &readable] {
        bench.kubelet.restart_container(uid, "main").unwrap();
        bench.until("another start", |view| view.pods[uid].containers[0].starts == 2).await;
    }
    assert_eq!([bench.given(&unreadable)[0].1, bench.given(&readable)[0].1], [1000, 2000], "at the next start");
    bench.gone(&unreadable).await;
    bench.until_booked(&[2000]).await;
    bench.killed(|_| {}).await;
    assert!(!fs::read_to_string(bench.journal()).unwrap().contains(&record), "its pod has ended");
}

#[tokio::test]
async fn pod_deleted_by_force_holds_its_gpu_until_processes_exit() {
    let bench = Bench::with(json!({"kubeletSettleTime": "1h"})).await;
    let uid = bench.run(part(&MEMORY.to_string())).await;
    bench.run(part("100")).await;
    bench.kubelet.set_faults(|faults| faults.stubborn = true);
    bench.kubelet.delete_by_force(&uid).unwrap();
    looked(&bench).await;
    bench.until_booked(&[MEMORY, 100]).await;
    // Not longer, however long a missing pod is doubted and others come.
    bench.run(part("200")).await;
    looked(&bench).await;
    bench.kubelet.set_faults(|faults| faults.stubborn = false);
    bench.until_booked(&[100, 200]).await;
}

#[tokio::test]
async fn pod_deleted_by_force_without_kubelet_ends_with_processes() {
    let bench = Bench::with(json!({"kubeletSettleTime": "1h"})).await;
    let uid = bench.run(part(&(MEMORY - 1).to_string())).await;
    bench.run(part("100")).await;
    looked(&bench).await;
    bench.kubelet.set_faults(|faults| faults.stubborn = true);
    bench.kubelet.delete_by_force(&uid).unwrap();
    bench.restart_kubelet(false).await;
    looked(&bench).await;
    bench.until_booked(&[MEMORY - 1, 100]).await;
    bench.kubelet.set_faults(|faults| faults.stubborn = false);
    bench.until_booked(&[100]).await;
}

/// Waits until the daemon has asked for the pods twice more: by then the books have heard of what was before.
async fn looked(bench: &Bench) {
    let asked = bench.kubelet.view().pod_lists;
    bench.until("two more looks", |view| view.pod_lists > asked + 2).await;
}

#[tokio::test]
async fn kubelet_restart_keeps_registration_and_running_pods() {
    let bench = Bench::new().await;
    let uid = bench.run(part("1000")).await;
    let given = bench.given(&uid);
    for lose_checkpoint in [false, true] {
        bench.restart_kubelet(lose_checkpoint).await;
        bench.run(part("100")).await;
        let view = bench.kubelet.view();
        assert_eq!((view.pods[&uid].phase, view.pods[&uid].containers[0].starts), (Phase::Running, 1));
        assert_eq!(bench.given(&uid), given);
    }
    bench.until_booked(&[1000, 100, 100]).await;
}

#[tokio::test]
async fn container_keeps_its_gpu_after_kubelet_lost_its_checkpoint() {
    let bench = Bench::new().await;
    let most = (MEMORY * 3 / 4).to_string();
    let uids = [bench.run(part(&most)).await, bench.run(part(&most)).await];
    let given = uids.each_ref().map(|uid| bench.given(uid));
    // A container whose limits can't be written waits, so it does when the kubelet is back.
    let (containers, aside) = (bench.path("run/containers"), bench.path("aside"));
    fs::rename(&containers, &aside).unwrap();
    fs::write(&containers, "").unwrap();
    bench.kubelet.restart_container(&uids[0], "main").unwrap();
    let failed =
        |state: &ContainerState| matches!(state, ContainerState::Waiting { reason, .. } if reason.contains("Error"));
    bench.until("the start to fail", |view| failed(&view.pods[&uids[0]].containers[0].state)).await;
    let before = bench.kubelet.view().registrations.len();
    let restart = RestartOptions { lose_checkpoint: true, down_for: Duration::from_secs(1) };
    let repair = async {
        let gone = async || bench.page("/readyz").await.filter(|(_, text)| text.contains("not registered"));
        bench.until_so("the kubelet's end", gone).await;
        fs::remove_file(&containers).unwrap();
        fs::rename(&aside, &containers).unwrap();
    };
    tokio::join!(async { bench.kubelet.restart(restart).await.unwrap() }, repair);
    bench.registered(before).await;
    bench.until("another start", |view| view.pods[&uids[0]].containers[0].starts == 2).await;
    assert_eq!(bench.given(&uids[0]), given[0]);
    assert_eq!(bench.given(&uids[1]), given[1]);
    bench.until_booked(&[MEMORY * 3 / 4; 2]).await;
}

/// The real one then fails pods for a second: its gRPC library waits that long after a dial that failed.
#[tokio::test]
async fn killed_kubelet_is_never_asked_to_dial_a_deleted_socket() {
    let bench = Bench::new().await;
    for _ in 0..10 {
        let before = bench.kubelet.view().registrations.len();
        let down_for = Duration::from_millis(150);
        bench.kubelet.restart(RestartOptions { down_for, ..RestartOptions::default() }).await.unwrap();
        bench.registered(before).await;
    }
    assert_eq!(bench.kubelet.view().unanswered, 0);
}

//! Pods that the kubelet rejects before it asks the daemon: they look as if they waited.

use divvy_testkit::pods::GPU;
use fake_kubelet::{Admission, Workload};

use crate::bench::{Bench, part, pod};

/// What comes of the admissions of pods that are bound at once.
async fn admitted<const N: usize>(bench: &Bench, pods: [Workload; N]) -> Vec<Result<(), String>> {
    let uids = pods.map(|pod| bench.kubelet.add_pod(pod.pod()).unwrap());
    let mut outcomes = Vec::new();
    for uid in uids {
        outcomes.push(match bench.kubelet.admitted(&uid).await.unwrap() {
            Admission::Admitted => Ok(()),
            Admission::Rejected(refusal) => Err(refusal.reason + ": " + &refusal.message),
            Admission::Deleted => Err("deleted".to_owned()),
        });
    }
    outcomes
}

fn forbidden() -> Workload {
    part("100").sysctl("kernel.msgmax", "65536")
}

#[tokio::test]
async fn pod_behind_a_rejected_one_is_admitted() {
    let bench = Bench::new().await;
    let outcomes = admitted(&bench, [forbidden(), part("200"), forbidden(), forbidden(), part("300")]).await;
    assert!(outcomes[0].as_ref().is_err_and(|message| message.starts_with("SysctlForbidden")), "{outcomes:?}");
    assert_eq!([&outcomes[1], &outcomes[4]], [&Ok(()), &Ok(())], "{}", bench.log());
    bench.until_booked(&[200, 300]).await;
}

/// More than the kubelet's rate limit lets through at once.
#[tokio::test]
async fn pod_behind_many_rejected_ones_is_admitted() {
    let bench = Bench::new().await;
    for _ in 0..20 {
        bench.kubelet.add_pod(forbidden().pod()).unwrap();
    }
    assert_eq!(admitted(&bench, [part("200")]).await, [Ok(())], "{}", bench.log());
    bench.until_booked(&[200]).await;
}

#[tokio::test]
async fn pod_behind_a_rejected_one_is_refused_by_name_without_get() {
    let bench = Bench::new().await;
    bench.kubelet.set_faults(|faults| faults.no_get = true);
    let outcomes = admitted(&bench, [forbidden(), part("200")]).await;
    let message = outcomes[1].as_ref().unwrap_err();
    for said in ["cannot tell which pod is being admitted", "recreate the pod", "needs Kubernetes 1.34"] {
        assert!(message.contains(said), "{message}");
    }
    assert_eq!(admitted(&bench, [part("300"), pod(&[(GPU, "1")])]).await, [Ok(()), Ok(())], "{}", bench.log());
}

//! What fails a pod after its devices were allocated, and faults that hand out IDs twice.

use fake_kubelet::Workload;

use crate::plugin::{GPU, options};
use crate::{Bench, pod};

#[tokio::test]
async fn a_later_admit_handler_may_reject_a_pod_that_has_devices() {
    let bench = Bench::new(options(false, false)).await;
    bench.kubelet.set_faults(|faults| faults.reject_after_allocate = 1.0);
    let (reason, _) = bench.rejected(pod("unlucky", "1")).await;
    assert_eq!(reason, "OutOfcpu");
    assert_eq!(bench.script.allocated.borrow().len(), 1, "the plugin was asked before");
}

#[tokio::test]
async fn pod_is_rejected_before_the_plugin_is_asked() {
    let bench = Bench::new(options(false, true)).await;
    let (reason, message) = bench.rejected(pod("kernel", "1").sysctl("kernel.msgmax", "65536")).await;
    assert_eq!(reason, "SysctlForbidden", "{message}");
    bench.kubelet.set_faults(|faults| faults.reject_before_allocate = 1.0);
    let (reason, _) = bench.rejected(pod("topology", "1")).await;
    assert_eq!(reason, "TopologyAffinityError");
    assert!(bench.script.asked.lock().unwrap().is_empty() && bench.script.allocated.borrow().is_empty());
}

#[tokio::test]
async fn amounts_above_allocatable_fail_the_pod_after_allocate() {
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

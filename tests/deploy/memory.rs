//! Memory limits, against what the programs may need at most.

use divvy_runtime::list::LARGEST_ITEM;

use crate::objects;

/// Bytes of the limit on memory of a workload's container.
fn limit(workload: &str) -> usize {
    let objects = objects::all("deploy/manifests");
    let pod = &objects::find(&objects, workload)["spec"]["template"]["spec"];
    let limit = pod["containers"][0]["resources"]["limits"]["memory"].as_str().unwrap();
    limit.strip_suffix("Mi").unwrap().parse::<usize>().unwrap() << 20
}

#[test]
fn memory_limits_hold_lists_of_the_largest_pods() {
    // What is resident without such pods, and lists at once: of an Allocate, of the periodic comparison and of a start.
    assert!(limit("DaemonSet divvy-system/divvy-node") >= (20 << 20) + 3 * 2 * LARGEST_ITEM);
    // Beside 40 000 pods: a list, a watch, which has the text twice, and the reservations of the last leader.
    assert!(limit("Deployment divvy-system/divvy-webhook") >= (150 << 20) + 5 * 2 * LARGEST_ITEM);
}

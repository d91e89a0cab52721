//! Instances of cards.

use super::*;

const INSTANCE: &str = "MIG-5c3f2a10-0000-4000-8000-0000000000c1";

/// A host whose second card is cut; the numbers are those of a driver that lists every instance that there could be.
fn host() -> Host {
    let host = Host::new();
    let minors = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu1/gi1/access 1012\ngpu1/gi1/ci0/access 13\n\
        gpu1/gi11/access 102\ngpu1/gi11/ci2/access 105\n";
    host.file("proc/driver/nvidia-caps/mig-minors");
    fs::write(host.path("proc/driver/nvidia-caps/mig-minors"), minors).expect("writing a file");
    for node in ["nvidia-cap102", "nvidia-cap105"] {
        host.link("/dev/null", &format!("dev/nvidia-caps/{node}"));
    }
    host
}

fn cut(gi: u32, ci: u32) -> Inventory {
    found([card(A, Some(0), None), card(INSTANCE, Some(1), Some((gi, ci)))])
}

/// Publishes the second card's instance, and gives it to a container.
fn outcome(host: &Host, strategies: &str, gi: u32, ci: u32) -> Result<ContainerResponse, String> {
    let delivery = Containers::new(host.options(strategies), Box::new(Accounting));
    let published = delivery.publish_cards(&cut(gi, ci)).map_err(|error| error.to_string());
    let answer = delivery.prepare(&allocated("n-1", &[share(INSTANCE, 1)])).map_err(|error| error.to_string());
    assert_eq!(published.err(), answer.as_ref().err().cloned(), "the log says what the pod is told");
    delivery.prepare(&allocated("n-2", &[share(A, 1)])).expect("a card that is whole is given all the same");
    answer.map_err(|error| host.steady(&error))
}

#[test]
fn mig_instance_gets_gpu_node_and_two_capabilities() {
    let host = host();
    let answer = outcome(&host, "cdi-cri", 11, 2).expect("an answer");
    assert_eq!(answer.cdi_devices[0], format!("divvy.dev/gpu={INSTANCE}"));
    let spec = fs::read_to_string(host.path("cdi/divvy.dev-gpu.json")).expect("a specification");
    let spec: serde_json::Value = serde_json::from_str(&spec).expect("JSON");
    let device = serde_json::to_string_pretty(&spec["devices"][1]).expect("JSON");
    insta::assert_snapshot!("instance", host.steady(&device));
}

#[test]
fn mig_instance_is_named_by_uuid_for_nvidia_runtime() {
    let host = host();
    let answer = outcome(&host, "envvar,volume-mounts", 1, 0).expect("its runtime makes the nodes");
    assert!(answer.mounts.iter().any(|mount| mount.container_path.ends_with(INSTANCE)), "{:?}", answer.mounts);
    let answer = outcome(&host, "envvar", 1, 0).expect("an answer");
    assert_eq!(answer.envs["NVIDIA_VISIBLE_DEVICES"], INSTANCE);
}

#[test]
fn instance_without_capabilities_is_refused_by_name() {
    let host = host();
    for strategies in ["auto", "cdi-cri", "cdi-annotations,envvar"] {
        assert_eq!(
            outcome(&host, strategies, 1, 0).expect_err("no such node"),
            format!(
                "MIG instance {INSTANCE} can't be allocated: /dev/nvidia-caps/nvidia-cap1012 is no device node: \
                make it with nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu1/mig/gi1/access"
            )
        );
    }
    assert_eq!(
        outcome(&host, "auto", 11, 1).expect_err("not listed"),
        format!(
            "MIG instance {INSTANCE} can't be allocated: \
            /host/proc/driver/nvidia-caps/mig-minors has no gpu1/gi11/ci1/access"
        )
    );
    fs::remove_dir_all(host.path("proc")).expect("gone");
    assert_eq!(
        outcome(&host, "auto", 11, 2).expect_err("no list"),
        format!(
            "MIG instance {INSTANCE} can't be allocated: \
            reading /host/proc/driver/nvidia-caps/mig-minors: No such file or directory (os error 2)"
        )
    );
    fs::remove_dir_all(host.path("driver")).expect("gone");
    assert!(outcome(&host, "auto", 11, 2).is_ok(), "without the driver's files NVIDIA's runtime delivers");
}

#[test]
fn instance_is_given_once_its_capabilities_exist() {
    let host = host();
    let delivery = Containers::new(host.options("auto"), Box::new(Accounting));
    delivery.publish_cards(&cut(1, 0)).expect_err("no such nodes");
    host.link("/dev/null", "dev/nvidia-caps/nvidia-cap1012");
    host.link("/dev/null", "dev/nvidia-caps/nvidia-cap13");
    delivery.publish_cards(&cut(1, 0)).expect("published");
    let answer = delivery.prepare(&allocated("n-1", &[share(INSTANCE, 1)])).expect("an answer");
    assert_eq!(answer.cdi_devices.len(), 1);
}

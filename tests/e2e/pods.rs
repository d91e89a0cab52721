//! Pods as users, and the webhook, would write them, for a real API server.

use anyhow::Context as _;
use divvy_api::ContainerKind::{self, App, Init, Sidecar};
use divvy_api::ContainerSpec;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

use crate::image;

/// Where all pods of scenarios live.
pub const PODS: &str = "/api/v1/namespaces/default/pods";
/// And their Deployments.
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// And their Jobs.
pub const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// Ends by itself, as Jobs' containers and ordinary init containers do.
pub const BRIEF: &str = "/bin/busybox sleep 0.2";
/// Doesn't.
pub const LASTING: &str = "exec /bin/busybox sleep 1000000";

/// The pod as the webhook would let it through: totals over a container's cards, and the requests beside them.
pub fn object(mut shape: PodShape) -> anyhow::Result<Value> {
    let requests = shape.requests()?;
    shape.normalise(&requests);
    Ok(plain(&shape))
}

/// The pod as its user wrote it, where there is no webhook.
pub fn plain(shape: &PodShape) -> Value {
    let mut spec = spec(&shape.containers, LASTING, "Always");
    if let Some((name, value)) = &shape.sysctl {
        spec["securityContext"] = json!({"sysctls": [{"name": name, "value": value}]});
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": shape.name, "annotations": shape.annotations},
        "spec": spec,
    })
}

/// A Deployment of such pods.
pub fn deployment(name: &str, replicas: usize, limits: &[(&str, &str)]) -> Value {
    let spec = &plain(&PodShape::new(name).with(App, "main", limits))["spec"];
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    })
}

/// A Job of one pod as the webhook would let it through, which ends by itself.
pub fn job(mut shape: PodShape) -> anyhow::Result<Value> {
    let requests = shape.requests()?;
    shape.normalise(&requests);
    let spec = spec(&shape.containers, BRIEF, "Never");
    let template = json!({"metadata": {"annotations": shape.annotations}, "spec": spec});
    Ok(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": shape.name},
        "spec": {"template": template, "backoffLimit": 10},
    }))
}

fn spec(containers: &[ContainerSpec], main: &str, restart_policy: &str) -> Value {
    let of = |wanted: &[ContainerKind]| {
        let all = containers.iter().filter(|container| wanted.contains(&container.kind));
        all.map(|spec| container(spec, main)).collect::<Vec<_>>()
    };
    json!({
        "hostNetwork": true,
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": 0,
        "restartPolicy": restart_policy,
        "initContainers": of(&[Init, Sidecar]),
        "containers": of(&[App]),
    })
}

fn container(spec: &ContainerSpec, main: &str) -> Value {
    let script = match spec.kind {
        Init => BRIEF,
        Sidecar => LASTING,
        App => main,
    };
    let mut container = json!({
        "name": spec.name,
        "image": image::WORK,
        "command": ["/bin/busybox", "sh", "-c", script],
        "resources": {"limits": spec.limits},
    });
    if spec.kind == Sidecar {
        container["restartPolicy"] = json!("Always");
    }
    container
}

/// GiB of memory and percent of compute of four parts of a GPU.
pub const PARTS: [(u32, u32); 4] = [(4, 10), (8, 25), (16, 50), (2, 5)];

/// Pod `number` of many that request the four [parts](PARTS) of a GPU in turn.
pub fn part(name: impl Into<String>, number: usize) -> PodShape {
    let (memory, cores) = PARTS[number % PARTS.len()];
    let amounts = [("gpu", "1"), ("gpumem", &format!("{memory}Gi")), ("gpucores", &cores.to_string())];
    PodShape::new(name).with(App, "main", &amounts)
}

/// Pod `number` of a mixed hundred: every way to ask for cards. A hundred in a row need ten and a half cards of 80 GiB
/// at most, six of them whole.
pub fn mixed(number: usize) -> PodShape {
    let part: &[(&str, &str)] = &[("gpu", "1"), ("gpumem", "4Gi"), ("gpucores", "5")];
    let little: &[(&str, &str)] = &[("gpu", "1"), ("gpumem", "2Gi")];
    let pod = |what: &str| PodShape::new(format!("{what}-{number}"));
    match number % 20 {
        0..6 => pod("infer").with(App, "main", part),
        6..8 => pod("notebook").with(App, "main", &[("gpu", "1"), ("gpumem", "3000Mi")]),
        8 => pod("serve").with(App, "main", &[("gpu", "1"), ("gpumem-percentage", "5"), ("gpucores", "5")]),
        9 => pod("bench").with(App, "main", &[("gpu", "1"), ("gpucores", "6")]),
        10 => pod("ring").with(App, "main", &[("gpu", "2"), ("gpumem", "2Gi"), ("gpucores", "4")]),
        11 => pod("pair").with(App, "left", part).with(App, "right", little).with(App, "log", &[]),
        12 => pod("etl").with(Init, "fetch", &[]).with(Init, "warm-up", part).with(App, "main", part),
        13 => pod("mesh").with(Sidecar, "codec", little).with(App, "main", part),
        14 => pod("stack")
            .with(Init, "convert", part)
            .with(Sidecar, "cache", little)
            .with(Init, "compile", &[("gpu", "1"), ("gpucores", "5")])
            .with(App, "serve", part)
            .with(App, "log", &[]),
        15 => pod("probe").with(Init, "check", &[("gpu", "2"), ("gpumem", "2Gi")]).with(
            App,
            "main",
            &[("gpu", "2"), ("gpumem", "4Gi"), ("gpucores", "4")],
        ),
        16..19 => pod("web").with(App, "main", &[]),
        _ => match number / 20 % 5 {
            0 => pod("train").with(App, "main", &[("gpu", "2")]),
            1 => pod("alone").with(App, "main", &[("gpu", "1"), ("gpucores", "100")]),
            _ => pod("whole").with(App, "main", &[("gpu", "1")]),
        },
    }
}

/// A pod of a recipe, or a Job, also one of Volcano's with one task, with an image that there is.
pub fn runnable(text: &str) -> anyhow::Result<Value> {
    let mut object: Value = serde_saphyr::from_str(text)?;
    let places = ["/spec/tasks/0/template/spec", "/spec/template/spec", "/spec"];
    let place = places.into_iter().find(|place| object.pointer(place).is_some());
    let spec = place.and_then(|place| object.pointer_mut(place)).context("no spec of a pod")?;
    spec["hostNetwork"] = json!(true);
    spec["automountServiceAccountToken"] = json!(false);
    spec["terminationGracePeriodSeconds"] = json!(0);
    spec["containers"][0]["image"] = json!(image::WORK);
    spec["containers"][0]["command"] = json!(["/bin/busybox", "sleep", "3600"]);
    Ok(object)
}

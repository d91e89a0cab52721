//! Groups of pods that start together: as kube-scheduler schedules them since 1.36, and as the coscheduling plugin does.
//!
//! Two groups come at once to GPUs that can hold one of them. By the scheduler's sums both fit: two pods share the room that
//! is left on three cards.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use divvy_api::ContainerKind::App;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::control_plane::set_profiles;
use divvy_e2e::node::CARDS;
use divvy_e2e::pods::{self, PODS};
use divvy_e2e::view;
use divvy_testkit::pods::PodShape;
use serde_json::{Value, json};

use crate::gates;
use crate::webhook::as_planned;

/// Program in `KUBE_BIN_DIR`, and the names of what it is given.
const COSCHEDULING: &str = "coscheduling";
const THEIRS: &str = "scheduling.x-k8s.io/v1alpha1";
const LABEL: &str = "scheduling.x-k8s.io/pod-group";
/// Flags of the programs of the control plane.
const GATES: &str = "--feature-gates=";
const APIS: &str = "--runtime-config=";
/// More than half of the cards, of which a pod takes more than half each.
const MEMBERS: u32 = CARDS / 2 + 1;
const SHARE: [(&str, &str); 2] = [("gpu", "1"), ("gpumem", "50Gi")];
const GROUPS: [&str; 2] = ["first", "second"];
const ROUNDS: usize = 3;
/// Both ways in which the leader plans groups.
const MODES: [&str; 2] = ["gates", "extender"];
/// Pods of the recipe.
const RECIPE: usize = 4;

/// kube-scheduler's own groups, which it has behind feature gates.
pub(crate) async fn of_kube_scheduler(cluster: &mut Cluster) -> anyhow::Result<()> {
    let version = cluster.api.get("/version").await?["gitVersion"].as_str().map(view::minor_version);
    if version.context("the API server has no version")?? < 36 {
        println!("  skipped: Kubernetes 1.36 and newer have groups of pods");
        return Ok(());
    }
    let gates = "GenericWorkload=true,GangScheduling=true";
    cluster.control_plane.api.set_args(&[(GATES, gates), (APIS, "scheduling.k8s.io/v1alpha2=true")]);
    cluster.control_plane.controller_manager.set_args(&[(GATES, gates)]);
    cluster.control_plane.scheduler.set_args(&[(GATES, gates)]);
    let result = behind_feature_gates(cluster).await;
    cluster.control_plane.api.set_args(&[(GATES, ""), (APIS, "")]);
    cluster.control_plane.controller_manager.set_args(&[(GATES, "")]);
    cluster.control_plane.scheduler.set_args(&[(GATES, "")]);
    restart(cluster).await?;
    result
}

async fn behind_feature_gates(cluster: &mut Cluster) -> anyhow::Result<()> {
    restart(cluster).await?;
    cluster.start_webhook().await?;
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": MEMBERS}}});
    for mode in MODES {
        schedule(cluster, mode).await?;
        rounds(cluster, (mode, "scheduling.k8s.io/v1alpha2"), &spec, |pod, group| {
            pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
        })
        .await?;
    }
    recipe(cluster, include_str!("../../../../deploy/recipes/gangs/pod-group.yaml")).await?;
    cluster.stop_webhook().await
}

/// A scheduler that knows no groups: the leader alone keeps them together.
pub(crate) async fn of_an_untouched_scheduler(cluster: &mut Cluster) -> anyhow::Result<()> {
    define(cluster).await?;
    cluster.start_webhook().await?;
    schedule(cluster, MODES[0]).await?;
    rounds(cluster, (MODES[0], THEIRS), &json!({"minMember": MEMBERS}), |pod, group| {
        pod["metadata"]["labels"][LABEL] = json!(group);
    })
    .await?;
    schedule(cluster, MODES[1]).await?;
    cluster.stop_webhook().await?;
    undefine(cluster).await
}

/// The plugin, in a kube-scheduler of its own.
pub(crate) async fn of_the_coscheduling_plugin(cluster: &mut Cluster) -> anyhow::Result<()> {
    let Some(scheduler) = cluster.given(COSCHEDULING) else {
        println!("  skipped: KUBE_BIN_DIR has no {COSCHEDULING}, a kube-scheduler with the plugin");
        return Ok(());
    };
    define(cluster).await?;
    cluster.start_webhook().await?;
    let own = cluster.control_plane.scheduler.set_path(scheduler);
    set_profiles(
        &cluster.files,
        Some(json!([{
            "schedulerName": "default-scheduler",
            "plugins": {
                "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
                "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
            },
            "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}],
        }])),
    )?;
    for mode in MODES {
        schedule(cluster, mode).await?;
        let spec = json!({"minMember": MEMBERS, "scheduleTimeoutSeconds": 10});
        rounds(cluster, (mode, THEIRS), &spec, |pod, group| {
            pod["metadata"]["labels"][LABEL] = json!(group);
        })
        .await?;
    }
    recipe(cluster, include_str!("../../../../deploy/recipes/gangs/coscheduling.yaml")).await?;
    set_profiles(&cluster.files, None)?;
    cluster.control_plane.scheduler.set_path(own);
    cluster.stop_webhook().await?;
    undefine(cluster).await
}

/// Has the webhook and its scheduler place pods this way.
async fn schedule(cluster: &mut Cluster, mode: &str) -> anyhow::Result<()> {
    println!("  scheduling: {mode}");
    gates::configure(cluster, mode).await?;
    cluster.restart_scheduler(mode == "extender").await
}

async fn define(cluster: &mut Cluster) -> anyhow::Result<()> {
    for (path, object) in definitions() {
        cluster.api.create(path, &object).await?;
    }
    let served =
        async |this: &mut Cluster| this.api.find(&format!("/apis/{THEIRS}/namespaces/default/podgroups")).await;
    cluster.until("the API of the plugin", PATIENCE, served).await.map(drop)
}

async fn undefine(cluster: &mut Cluster) -> anyhow::Result<()> {
    for (path, object) in definitions() {
        cluster.api.delete(&format!("{path}/{}", view::name(&object))).await?;
    }
    Ok(())
}

/// What the plugin's chart brings, as far as it takes it to schedule pods.
fn definitions() -> [(&'static str, Value); 3] {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "podgroups.scheduling.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"},
        },
        "spec": {
            "group": "scheduling.x-k8s.io", "scope": "Namespaced", "versions": [version],
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
        },
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": COSCHEDULING},
        "rules": [{
            "apiGroups": ["scheduling.x-k8s.io"], "resources": ["podgroups", "podgroups/status"],
            "verbs": ["get", "list", "watch", "patch", "update"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": COSCHEDULING},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": COSCHEDULING},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-scheduler"}],
    });
    [
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", role),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
    ]
}

/// Runs what deploy/recipes/gangs shows: a group, and a Job with its pods.
async fn recipe(cluster: &mut Cluster, text: &str) -> anyhow::Result<()> {
    let (group, job) = text.split_once("\n---\n").context("two documents")?;
    let group = cluster.files.write("group.yaml", group)?.display().to_string();
    let job = cluster.files.write("job.yaml", pods::runnable(job)?.to_string())?.display().to_string();
    cluster.kubectl.run(&["apply", "-f", &group, "-f", &job]).await?;
    cluster.all_running(RECIPE).await?;
    cluster.agree().await?;
    as_planned(cluster).await?;
    cluster.kubectl.run(&["delete", "-f", &job, "-f", &group]).await?;
    cluster.clear().await
}

/// Both groups come at once, several times, and end.
async fn rounds(
    cluster: &mut Cluster,
    (mode, version): (&str, &str),
    spec: &Value,
    join: impl Fn(&mut Value, &str),
) -> anyhow::Result<()> {
    let path = format!("/apis/{version}/namespaces/default/podgroups");
    for round in 1..=ROUNDS {
        for name in GROUPS {
            // The one of the last round may still be there: it has a finalizer.
            let metadata = json!({"name": format!("{name}-{mode}-{round}")});
            let group = json!({"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec});
            cluster.api.create(&path, &group).await?;
        }
        one_after_the_other(cluster, round, |pod, group| join(pod, &format!("{group}-{mode}-{round}"))).await?;
        for name in GROUPS {
            cluster.api.delete(&format!("{path}/{name}-{mode}-{round}")).await?;
        }
    }
    Ok(())
}

/// Both groups' pods come in turn. One group runs, and none of the other's pods; once it has ended, the other runs.
async fn one_after_the_other(
    cluster: &mut Cluster,
    round: usize,
    join: impl Fn(&mut Value, &str),
) -> anyhow::Result<()> {
    let pod = |number: u32, group: &str| {
        let mut pod = pods::plain(&PodShape::new(format!("{group}-{number}")).with(App, "main", &SHARE));
        join(&mut pod, group);
        pod
    };
    let objects = (0..MEMBERS).flat_map(|number| GROUPS.map(|group| pod(number, group))).collect();
    cluster.create_objects(objects).await?;
    let members = usize::try_from(MEMBERS)?;
    let first = runs(cluster, members).await?;
    let last = GROUPS.into_iter().find(|group| *group != first).context("another group")?;
    for number in 0..MEMBERS {
        let why = cluster.until_pod(&format!("{last}-{number}"), view::unplaced).await?;
        if number == 0 {
            println!("  round {round}: {first} runs, {last} waits: {why}");
        }
    }
    let bound = cluster.list().await?.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
    ensure!(bound == members, "{bound} pods are bound");
    cluster.agree().await?;
    let begun = Instant::now();
    for number in 0..MEMBERS {
        cluster.api.delete(&format!("{PODS}/{first}-{number}")).await?;
    }
    ensure!(runs(cluster, members).await? == last, "the other group's turn");
    println!("  round {round}: {last} runs {:.1?} after the end of {first}", begun.elapsed());
    cluster.agree().await?;
    as_planned(cluster).await?;
    cluster.clear().await
}

/// Waits until all pods of a group run, and returns its name.
async fn runs(cluster: &mut Cluster, members: usize) -> anyhow::Result<&'static str> {
    cluster
        .until("a group that runs", PATIENCE, async |this| {
            let pods = this.list().await?;
            let ready = |group: &str| {
                pods.iter().filter(|pod| view::name(pod).starts_with(group) && view::is_ready(pod)).count()
            };
            Ok(GROUPS.into_iter().find(|group| ready(group) == members))
        })
        .await
}

/// Starts API server, controller manager and scheduler anew, as they are configured.
async fn restart(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.control_plane.api.kill().await?;
    cluster.control_plane.api.start()?;
    cluster.api_ready().await?;
    cluster.control_plane.controller_manager.kill().await?;
    cluster.control_plane.controller_manager.start()?;
    cluster.restart_scheduler(false).await
}

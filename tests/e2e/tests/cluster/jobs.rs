//! Jobs whose templates are completed, where their namespace asks for it.

use anyhow::ensure;
use divvy_e2e::cluster::{Cluster, PATIENCE};
use divvy_e2e::{image, view};
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/completes";
const JOB: &str = "/apis/batch/v1/namespaces/completes/jobs/train";
const PODS: &str = "/api/v1/namespaces/completes/pods";

/// A template has the totals of its pods, which run; the Job can be applied again.
pub(crate) async fn as_their_pods_are(cluster: &mut Cluster) -> anyhow::Result<()> {
    cluster.start_webhook().await?;
    let labels = json!({"divvy.dev/complete-jobs": "true"});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "completes", "labels": labels}});
    cluster.api.create("/api/v1/namespaces", &namespace).await?;
    let account = format!("{NAMESPACE}/serviceaccounts/default");
    cluster.until("the namespace's service account", PATIENCE, async |this| this.api.find(&account).await).await?;

    let job = cluster.files.write("job.json", job().to_string())?.display().to_string();
    let mut templates = Vec::new();
    for _ in 0..2 {
        // The second time the template can't be changed any more.
        cluster.kubectl.run(&["apply", "--filename", &job]).await?;
        templates.push(cluster.api.get(JOB).await?["spec"]["template"].take());
    }
    ensure!(templates[0] == templates[1], "applied again, {} became {}", templates[0], templates[1]);
    let pod = cluster
        .until("pod of the Job", PATIENCE, async |this| {
            let pods = this.api.get(PODS).await?["items"].take();
            Ok(pods.as_array().and_then(|pods| pods.iter().find(|pod| view::is_ready(pod)).cloned()))
        })
        .await?;
    let counted = |pod: &Value| {
        [&pod["spec"]["containers"][0]["resources"], &pod["metadata"]["annotations"]["divvy.dev/request"]]
            .map(Clone::clone)
    };
    ensure!(
        counted(&templates[0]) == counted(&pod),
        "the template has {:?}, its pod {:?}",
        counted(&templates[0]),
        counted(&pod)
    );
    let limits = &pod["spec"]["containers"][0]["resources"]["limits"];
    println!("  template and pod have {limits}");
    ensure!(limits["nvidia.com/gpumem"] == "16384", "{limits}");

    cluster.api.delete(NAMESPACE).await?;
    cluster
        .until("end of the namespace", PATIENCE, async |this| {
            Ok(this.api.find(NAMESPACE).await?.is_none().then_some(()))
        })
        .await?;
    cluster.clear().await?;
    cluster.stop_webhook().await
}

/// 8 GiB and 30 percent of each of two GPUs.
fn job() -> Value {
    let limits = json!({"nvidia.com/gpu": 2, "nvidia.com/gpumem": "8Gi", "nvidia.com/gpucores": 30});
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "completes"},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "hostNetwork": true,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": image::WORK, "command": ["/bin/busybox", "sleep", "3600"],
                "resources": {"limits": limits},
            }],
        }}},
    })
}

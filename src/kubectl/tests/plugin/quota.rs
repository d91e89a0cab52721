//! `kubectl divvy quota`.

use divvy_api::gpuquota::GpuQuota;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::{Bench, Ended, PROGRAM, ended};

fn quota(name: &str, spec: &Value) -> Value {
    let metadata = json!({ "namespace": "team-a", "name": name });
    json!({ "apiVersion": "divvy.dev/v1alpha1", "kind": "GpuQuota", "metadata": metadata, "spec": spec })
}

impl Bench {
    async fn quota(&self, arguments: &str) -> Ended {
        ended(self.command(PROGRAM, &format!("quota {arguments}"))).await
    }
}

#[tokio::test]
async fn use_of_quotas_is_shown_beside_their_limits() {
    let bench = Bench::with_pods().await;
    let none = Ended { code: Some(0), out: String::new(), err: "No GpuQuotas found in team-a namespace\n".into() };
    assert_eq!(bench.quota("-n team-a").await, none, "the kind isn't defined");
    bench.server.create(&json!(GpuQuota::crd())).unwrap();
    assert_eq!(bench.quota("-n team-a").await, none);
    let l4 = json!({ "models": ["L4"], "hard": { "gpu": 2, "gpumem": "20Gi" } });
    bench.server.create(&quota("l4", &l4)).unwrap();
    let all = json!({ "hard": { "gpumem-percentage": 400 } });
    bench.server.create(&quota("other", &json!({ "models": ["H100"], "hard": { "gpucores": 100 } }))).unwrap();
    bench.server.create(&quota("all", &all)).unwrap();
    let Ended { code, out, err } = bench.quota("-n team-a").await;
    assert_eq!((code, &*err), (Some(0), ""));
    insta::assert_snapshot!(out);
    let Ended { code, out, err } = bench.quota("l4 nope -n team-a -o json").await;
    assert_eq!(
        (code, &*err),
        (Some(1), "Error from server (NotFound): gpuquotas.divvy.dev \"nope\" not found\n"),
        "{out}"
    );
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["quotas"][0]["amounts"][1], json!({ "resource": "gpumem", "used": 16384, "hard": 20480 }));
    assert_eq!(report["quotas"][0]["amounts"][3], json!({ "resource": "gpucores", "used": 0 }));
    let everywhere = bench.quota("-A --no-headers").await;
    assert_eq!(everywhere.out.lines().count(), 4, "{}", everywhere.out);

    let explained = ended(bench.command(PROGRAM, "explain small -n team-a")).await;
    let said =
        "2 exceeded GpuQuota l4, requested: gpu=1,gpumem=10Gi, used: gpu=2,gpumem=16Gi, limited: gpu=2,gpumem=20Gi";
    assert!(
        explained.out.starts_with(&format!("team-a/small: 0/2 nodes are available: {said}\n")),
        "{}",
        explained.out
    );

    // Whatever its node reports.
    let used = async || {
        let Ended { out, err, .. } = bench.quota("l4 -n team-a -o json").await;
        let report: Value = serde_json::from_str(&out).unwrap();
        (report["quotas"][0]["amounts"][0]["used"].clone(), err)
    };
    for (pod, left) in [("batch-0", 1), ("on-its-way", 0)] {
        bench.server.delete("Pod", "team-a", pod, Some(0)).unwrap();
        assert_eq!(used().await, (left.into(), String::new()), "{pod}");
    }
    bench.server.fail("list", "/api/v1/namespaces/team-a/pods", 1, http::StatusCode::FORBIDDEN);
    let (used, err) = used().await;
    assert_eq!(used, 1, "what node-1 reports");
    assert!(err.contains("aren't counted, and what nodes report is believed: Error"), "{err}");
}

#[tokio::test]
async fn quota_that_cannot_be_read_is_named() {
    let bench = Bench::with_pods().await;
    bench.server.create(&json!(GpuQuota::crd())).unwrap();
    bench.server.create(&quota("l4", &json!({ "hard": { "gpumem": "8G" } }))).unwrap();
    let Ended { code, out, err } = bench.quota("-n team-a -o wide").await;
    assert_eq!((code, out.lines().count()), (Some(0), 5), "{out}");
    assert_eq!(
        err,
        "warning: GpuQuota team-a/l4 can't be read, so the namespace gets no more GPUs: spec.hard.gpumem: \"8G\" is \
         ambiguous: did you mean \"8Gi\"?\n"
    );
}

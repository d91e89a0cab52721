//! From the start to the first answer, and exit codes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use divvy_api::gpuquota::GpuQuota;
use divvy_index::pod_group::PodGroupApi;
use http::StatusCode;
use kube::CustomResourceExt as _;
use serde_json::json;
use tokio::process::Command;

use crate::bench::{Bench, route};
use crate::replica::PROGRAM;
use crate::{until, within};

#[tokio::test]
async fn readyz_waits_for_lists_and_a_certificate() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    for (kind, namespace) in [("ClusterRoleBinding", ""), ("RoleBinding", "divvy-system")] {
        bench.server.delete(kind, namespace, "divvy-webhook", None).unwrap();
    }
    let replica = bench.start("divvy-webhook-a", &json!({}));
    let says = async |what: &[&str], not: &[&str]| {
        let look = async || {
            let (code, text) = replica.page("readyz").await?;
            let is = what.iter().all(|line| text.contains(line)) && !not.iter().any(|line| text.contains(line));
            (is && code == 503).then_some(())
        };
        until(&format!("{what:?} and not {not:?}"), look).await;
    };
    let certificate = "no certificate yet\n";
    let forbidden = ["pods", "nodes", "gpunodes"].map(|kind| format!("{kind} not listed yet: 403 Forbidden: "));
    says(&forbidden.each_ref().map(String::as_str), &["from memory"]).await;
    says(&[certificate], &["from memory"]).await;
    bench.server.create(&Bench::installed("RoleBinding")).unwrap();
    says(&["not listed yet"], &[certificate]).await;
    assert_eq!(replica.page("healthz").await.unwrap(), (200, "ok\n".to_owned()));
    bench.server.create(&Bench::installed("ClusterRoleBinding")).unwrap();
    replica.ready().await;
    let memory = async || replica.page("readyz").await.filter(|(_, text)| text == "ok\n");
    until("nothing is from memory", memory).await;
    let refusals: Vec<String> = replica.log().lines().filter(|line| line.contains("403")).map(str::to_owned).collect();
    let of = |kind: &str| {
        refusals.iter().filter(|line| line.contains(&format!("watch {kind} failed: 403 Forbidden: "))).count()
    };
    assert!(["pods", "nodes", "gpunodes"].iter().all(|kind| of(kind) == 1), "{refusals:#?}");
    assert!(!refusals.iter().any(|line| line.contains("with 403")), "{refusals:#?}");
    assert!(replica.admin_page("config").await.unwrap().1.contains("podName: divvy-webhook-a\n"));
    assert_eq!(replica.page("config").await.unwrap().0, 404);
    assert_eq!(replica.admin_page("metrics").await.unwrap().0, 404);
    assert!(replica.metric("divvy_nodes", &[]).await > 0.5);
    let (_, metrics) = replica.page("metrics").await.unwrap();
    let described: Vec<&str> = metrics.lines().filter(|line| line.starts_with("# ")).collect();
    insta::assert_snapshot!("metrics", described.join("\n"));

    replica.leads().await;
    let lease = bench.server.get("Lease", "divvy-system", "divvy-webhook").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "divvy-webhook-a");
    assert_eq!(within("a route to the leader", bench.server.wait_for(route)).await, replica.extender);
    let bundle = BASE64_STANDARD.encode(bench.issued("ca.crt"));
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let filled = bench.server.wait_for(|view| {
            let configuration = view.get(kind, "", "divvy-webhook")?;
            let own = configuration["webhooks"].as_array()?;
            own.iter().all(|webhook| webhook["clientConfig"]["caBundle"] == json!(bundle)).then_some(())
        });
        within(&format!("caBundle of {kind}"), filled).await;
    }
}

#[tokio::test]
async fn lists_of_strangers_kinds_that_fail_hold_nothing_up() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    let broken = [
        (PodGroupApi::Kubernetes, StatusCode::FORBIDDEN),
        (PodGroupApi::Coscheduling, StatusCode::INTERNAL_SERVER_ERROR),
    ];
    for (api, code) in broken {
        bench.define_pod_groups(api);
        bench.server.fail("list", &format!("/apis/{}/", api.group()), usize::MAX, code);
    }
    let replica = bench.start("divvy-webhook-a", &json!({}));
    replica.ready().await;
    replica.leads().await;
    let (code, text) = replica.page("readyz").await.unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((code, lines[0], lines.len()), (200, "ok", 3), "{text}");
    assert!(lines[1].starts_with("podgroups.scheduling.k8s.io left out, list failing: 403 Forbidden"), "{text}");
    assert!(lines[2].starts_with("podgroups.scheduling.x-k8s.io left out, list failing: 500"), "{text}");
    assert!(replica.log().contains("watch podgroups.scheduling.k8s.io failed: 403"), "{}", replica.log());
}

#[tokio::test]
async fn quotas_that_cannot_be_listed_are_waited_for() {
    let bench = Bench::with_nodes(&[("n1", 1)]).await;
    bench.server.create(&json!(GpuQuota::crd())).unwrap();
    bench.server.fail("list", "/gpuquotas", usize::MAX, StatusCode::INTERNAL_SERVER_ERROR);
    let replica = bench.start("divvy-webhook-a", &json!({}));
    let waits = async || {
        let (code, text) = replica.page("readyz").await?;
        (code == 503 && text.lines().any(|line| line.starts_with("gpuquotas not listed yet: 500"))).then_some(())
    };
    until("the list of quotas is missing", waits).await;
}

#[tokio::test]
async fn bad_flags_and_files_exit_with_64_and_a_reason() {
    let cases: [(&[&str], &str); 6] = [
        (&["--shortlist", "5001"], "0 to 5000"),
        (&["--admin-address", "0.0.0.0:9404"], "\"0.0.0.0:9404\" is not a loopback address with a port: expected"),
        (&["--no-such-flag"], "unexpected argument '--no-such-flag'"),
        (&[], "podName is missing"),
        (&["--config-file", "/nowhere"], "reading configuration file /nowhere"),
        (
            &["--pod-name", "a", "--pod-ip", "::1", "--namespace", "b", "--resource-cores", "nvidia.com/gpu"],
            "resource nvidia.com/gpu stands for two amounts",
        ),
    ];
    for (flags, said) in cases {
        let output = Command::new(PROGRAM).args(flags).env_clear().output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(64) && stderr.contains(said), "{flags:?}: {}: {stderr}", output.status);
    }
}

#[tokio::test]
async fn missing_cluster_exits_with_1_and_a_reason() {
    let flags = ["--pod-name", "a", "--pod-ip", "127.0.0.1", "--namespace", "b"];
    let listeners = ["--listen-address", "--metrics-address", "--admin-address"];
    let ports = listeners.map(|flag| [flag, "127.0.0.1:0"]).concat();
    for (kubeconfig, said) in [
        (&[][..], "no kubeconfig is set, and this is not a pod of a cluster"),
        (&["--kubeconfig", "/nowhere"], "kubeconfig /nowhere"),
    ] {
        let mut command = Command::new(PROGRAM);
        let ended = command.args(flags).args(&ports).args(kubeconfig).env_clear().kill_on_drop(true).output();
        let output = within(said, ended).await.unwrap();
        let log = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.code() == Some(1) && log.contains(said), "{}: {log}", output.status);
    }
}

#[tokio::test]
async fn taken_port_exits_with_1() {
    let bench = Bench::new().await;
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (name, key) in [("divvy-webhook-a", "metricsAddress"), ("divvy-webhook-b", "adminAddress")] {
        let mut replica = bench.start(name, &json!({ key: taken.local_addr().unwrap().to_string() }));
        assert_eq!(replica.ended().await.code(), Some(1), "{key}");
        assert!(replica.log().contains("listening on 127.0.0.1"), "{}", replica.log());
    }
}

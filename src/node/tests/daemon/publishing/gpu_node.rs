//! `GpuNode`: made, healed, and waited for.

use std::time::Duration;

use divvy_api::gpunode::{GpuNode, GpuNodeStatus};
use divvy_api::{ContainerKind, Cores, Memory, Tier};
use divvy_testkit::pods::GPU;
use fake_kubelet::Workload;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::bench::cluster::{amounts, status};
use crate::bench::{Bench, CARDS, MEMORY, Stderr, part, pod};

/// A watch that fails is tried again after half a minute at the latest.
const RETRIED: Duration = Duration::from_secs(90);
const MISSING: &str = "apply its CustomResourceDefinition";

#[tokio::test]
async fn gpu_node_is_owned_by_its_node_and_shows_the_ledger() {
    let bench = Bench::publishing().await;
    let owner = bench.server().get("GpuNode", "", "node").unwrap()["metadata"]["ownerReferences"][0].clone();
    let node = bench.server().get("Node", "", "node").unwrap();
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["uid"]),
        (&json!("Node"), &json!("node"), &node["metadata"]["uid"])
    );
    let half = bench.run(pod(&[(GPU, "1"), ("nvidia.com/gpumem", "8192"), ("nvidia.com/gpucores", "30")])).await;
    let whole = bench.run(pod(&[(GPU, "1")])).await;
    let told = bench.until_told("both shares", |status| status.shares.len() == 2).await;
    assert_eq!(told.ledger_revision, bench.revision().await);
    assert_eq!((told.tier, told.cards.len()), (Tier::Accounting, CARDS as usize));
    assert!(told.cards.iter().all(|card| card.memory == Memory::mib(MEMORY) && card.model == "NVIDIA L4"), "{told:#?}");
    for (uid, exclusive, cores) in [(&half, false, 30), (&whole, true, 100)] {
        let share = told.shares.iter().find(|share| share.pod_uid == *uid).unwrap();
        assert_eq!((&*share.namespace, &*share.container), ("default", "main"));
        assert_eq!(bench.given(uid), [(share.card.to_string(), share.share.memory.as_mib())]);
        assert_eq!((share.share.exclusive, share.share.cores), (exclusive, Cores::new(cores)));
    }
    let holds = |kind: &str| told.conditions.iter().find(|condition| condition.type_ == kind).map(|own| &*own.status);
    let all = ["Ready", "InventoryKnown", "Draining"].map(holds);
    assert_eq!(all, [Some("True"), Some("True"), Some("False")]);
    assert_eq!((&*told.summary.memory, &*told.summary.cores, told.summary.pods), ("24Gi/32Gi", "130/200", 2));
    bench.server().delete("Node", "", "node", None).unwrap();
    bench.until_shown("the end of both", |view| view.get("GpuNode", "", "node").is_none().then_some(())).await;
    bench.until_said("Node node doesn't exist yet").await;
}

#[tokio::test]
async fn edited_gpu_node_is_reverted_and_deleted_one_recreated() {
    let bench = Bench::publishing().await;
    bench.run(part("1000")).await;
    let told = bench.until_told("the share", |status| status.shares.len() == 1).await;
    let edits: [fn(&mut Value); 3] = [
        |node| node["status"]["shares"] = json!([]),
        |node| node["status"] = Value::Null,
        |node| node["status"]["conditions"][0]["status"] = "False".into(),
    ];
    for edit in edits {
        bench.server().edit("GpuNode", "", "node", edit).unwrap();
        let whole =
            |status: &GpuNodeStatus| status.shares == told.shares && status.conditions.len() == told.conditions.len();
        let healed = bench.until_told("healing", whole).await;
        assert_eq!(healed.cards, told.cards);
        bench
            .until_told("the conditions", |status| {
                status.conditions.iter().all(|own| own.type_ != "Ready" || own.status == "True")
            })
            .await;
    }
    for _ in 0..2 {
        bench.server().delete("GpuNode", "", "node", None).unwrap();
        let again = bench.until_told("another one", |status| status.shares == told.shares).await;
        assert_eq!(again.ledger_revision, told.ledger_revision);
    }
    assert_eq!(bench.log().matches("not published").count(), 0, "{}", bench.log());
}

#[tokio::test]
async fn deleted_gpu_node_is_made_again_while_the_watch_is_late() {
    let bench = Bench::publishing().await;
    bench.run(part("1000")).await;
    bench.until_told("the share", |status| status.shares.len() == 1).await;
    bench.server().swallow("watch", "/gpunodes", usize::MAX);
    bench.server().drop_watches();
    bench.server().delete("GpuNode", "", "node", None).unwrap();
    bench.run(part("2000")).await;
    bench.until_told("another one", |status| status.shares.len() == 2).await;
}

#[tokio::test]
async fn older_crd_is_logged_once_until_replaced() {
    let mut bench = Bench::joined().await;
    let mut old = json!(GpuNode::crd());
    let status = &mut old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
    let shares = &mut status["shares"]["items"]["properties"];
    shares.as_object_mut().unwrap().remove("kind").expect("a field of now");
    bench.server().create(&old).unwrap();
    bench.start(Stderr::Log).await;
    bench.ready().await;
    let init =
        |name: &str| Workload::new(name).init("init", &[(GPU, "1"), ("nvidia.com/gpumem", "1024")]).app("main", &[]);
    bench.run(init("first")).await;
    let told = "gpunode: the API server doesn't keep status.shares[].kind";
    bench.until_said(told).await;
    let writes = |view: &fake_apiserver::View<'_>| {
        view.requests().iter().filter(|asked| asked.path.ends_with("/gpunodes/node/status")).count()
    };
    bench.run(part("100")).await;
    bench.until_told("both", |status| status.shares.len() == 2).await;
    let before = bench.server().read(writes);
    for _ in 0..3 {
        // Each healing of the Node is a round, which looks at the GpuNode too.
        let zero = |node: &mut Value| node["status"]["capacity"]["nvidia.com/gpucores"] = "0".into();
        bench.server().edit("Node", "", "node", zero).unwrap();
        bench.until_shown("amounts", |view| (amounts(view)?[2] == 200).then_some(())).await;
    }
    assert!(bench.server().read(writes) <= before + 1, "written once a change: {}", bench.log());
    assert_eq!(bench.log().matches(told).count(), 1, "{}", bench.log());
    bench
        .server()
        .edit("CustomResourceDefinition", "", "gpunodes.divvy.dev", |definition| {
            *definition = json!(GpuNode::crd());
        })
        .unwrap();
    bench.run(init("second")).await;
    bench.until_told("its kind", |status| status.shares.iter().any(|share| share.kind == ContainerKind::Init)).await;
}

#[tokio::test]
async fn missing_crd_is_logged_rarely_until_it_is_created() {
    let mut bench = Bench::joined().await;
    bench.start(Stderr::Log).await;
    bench.ready().await;
    bench.run(part("4096")).await;
    bench.until_offered([2 * MEMORY, 175, 200]).await;
    bench.until_said(MISSING).await;
    // Of a version that nobody here knows: as good as none.
    let mut old = json!(GpuNode::crd());
    old["spec"]["versions"][0]["name"] = "v1alpha0".into();
    bench.server().create(&old).unwrap();
    let asked = |view: &fake_apiserver::View<'_>| {
        view.requests().iter().filter(|asked| asked.path.contains("/apis/divvy.dev/v1alpha1/gpunodes")).count()
    };
    let before = bench.server().read(asked);
    bench.until_shown("another try", |view| (asked(view) > before + 1).then_some(())).await;
    assert!((1..=3).contains(&bench.log().matches(MISSING).count()), "at once, after 10 s and 70 s: {}", bench.log());
    bench.server().delete("CustomResourceDefinition", "", "gpunodes.divvy.dev", None).unwrap();
    bench.define();
    let told = |view: &fake_apiserver::View<'_>| status(view).filter(|status| status.shares.len() == 1);
    bench.until_shown_within(RETRIED, "the GpuNode", told).await;
    assert!((1..=3).contains(&bench.log().matches(MISSING).count()), "at once, after 10 s and 70 s: {}", bench.log());
}

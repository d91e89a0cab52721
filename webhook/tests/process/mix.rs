//! What is learned of requests outlives the processes that learned it.

use divvy_index::Learned;
use divvy_index::learned::{CONFIG_MAP, KEY};
use http::StatusCode;
use serde_json::{Value, json};

use crate::bench::{Bench, pod};
use crate::{until, within};

const PATH: &str = "/api/v1/namespaces/divvy-system/configmaps/divvy-mix";

impl Bench {
    /// A cluster to which so many pods have come that their requests tell something.
    async fn with_pods() -> Self {
        let bench = Self::with_nodes(&[("n1", 1)]).await;
        names().for_each(|name| drop(bench.server.create(&pod(&name, 8, 0)).unwrap()));
        bench
    }

    /// What is kept, once it can be read.
    async fn kept(&self) -> Learned {
        let readable = self.server.wait_for(|view| {
            let map = view.get("ConfigMap", "divvy-system", CONFIG_MAP)?;
            Learned::decode(map["data"][KEY].as_str()?).ok()
        });
        within("something is kept", readable).await
    }
}

fn names() -> impl Iterator<Item = String> {
    (0..60).map(|number| format!("p{number}"))
}

#[tokio::test]
async fn the_next_leader_goes_on_from_what_the_last_one_has_learned() {
    let bench = Bench::with_pods().await;
    let first = bench.alone(&json!({})).await;
    let kept = bench.kept().await;
    assert_eq!((kept.revision, kept.pods, kept.requests.len()), (1, 60, 1));
    first.counts("divvy_mix_revision", &[], 1.0).await;
    bench.apply("ConfigMap", PATH).await;
    assert_eq!(bench.kept().await, kept, "who upgrades doesn't take it away");

    drop(first);
    names().take(20).for_each(|name| drop(bench.server.delete("Pod", "default", &name, None).unwrap()));
    bench.server.be_late("list", "/pods", 1);
    let next = bench.start("divvy-webhook-b", &json!({}));
    let knows_the_rest = async || {
        let (_, text) = next.page("readyz").await?;
        (text.lines().count() == 1 && text.contains("pods not listed yet")).then_some(())
    };
    until("all but the pods is known", knows_the_rest).await;
    bench.server.answer_late();
    next.says("going on from what was learned before").await;
    next.ready().await;
    assert!((next.metric("divvy_mix_pods", &[]).await - 60.0).abs() < 0.5, "those that are still there count once");
    let explained = bench.explain(&next, &pod("asked", 8, 0)).await;
    let expected = &explained["expected"];
    assert_eq!((&expected["revision"], &expected["pods"]), (&json!(1), &json!(60)), "{explained}");
    assert_eq!(expected["requests"][0]["percent"], 100.0);
    next.leads().await;
    assert_eq!(bench.kept().await, kept, "it has nothing to add");
    assert_eq!(next.log().matches("divvy-mix").count(), 1, "{}", next.log());
}

#[tokio::test]
async fn whatever_is_kept_is_survived_said_and_replaced() {
    let version = Learned { revision: 8, pods: 99, requests: Vec::new() }.encode().replace("v1", "v2");
    for (garbage, said) in [
        ("{".to_owned(), "mix.json: EOF while parsing"),
        (version, "mix.json: version \"v2\" is not known here"),
        ("x".repeat(900_000), "mix.json: 900000 bytes, expected"),
    ] {
        let bench = Bench::with_pods().await;
        let write = |map: &mut Value| map["data"] = json!({ KEY: garbage, "of-others": "stays" });
        bench.server.edit("ConfigMap", "divvy-system", CONFIG_MAP, write).unwrap();
        let replica = bench.alone(&json!({})).await;
        replica.says(said).await;
        assert_eq!(bench.kept().await.pods, 60);
        let map = bench.server.get("ConfigMap", "divvy-system", CONFIG_MAP).unwrap();
        assert_eq!(map["data"]["of-others"], "stays");
        assert_eq!(replica.log().matches("divvy-mix").count(), 1, "{}", replica.log());
    }
}

#[tokio::test]
async fn without_the_object_or_the_right_to_it_requests_are_learned_all_the_same() {
    for (forbidden, said) in [
        (None, "it doesn't exist"),
        (Some("get"), "not read for now: 403"),
        (Some("update"), "not written for now: 403"),
    ] {
        let bench = Bench::with_pods().await;
        match forbidden {
            None => drop(bench.server.delete("ConfigMap", "divvy-system", CONFIG_MAP, None).unwrap()),
            Some(verb) => bench.server.fail(verb, "/configmaps/divvy-mix", 9, StatusCode::FORBIDDEN),
        }
        let replica = bench.alone(&json!({})).await;
        replica.says(&format!("ConfigMap divvy-mix: {said}")).await;
        let explained = bench.explain(&replica, &pod("asked", 8, 0)).await;
        let expected = &explained["expected"];
        assert_eq!((&expected["revision"], &expected["pods"]), (&json!(0), &json!(60)), "{explained}");
        assert_eq!(replica.log().matches("divvy-mix").count(), 1, "{}", replica.log());
    }
}

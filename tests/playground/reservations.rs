//! Cards that the extender reserved for bound pods (`divvy.dev/planned`), compared with the cards that the pods hold.

use std::collections::BTreeSet;

use divvy_api::annotation::{self, Document as _, Planned, PlannedCards};
use divvy_api::pod::peak;
use divvy_api::{ContainerRequest, Cores, Share};
use divvy_placement::Held;
use serde_json::Value;

use divvy_testkit::outside::{CardView, NodeView, PodView, Requests};
use fake_apiserver::{ApiServer, View};

/// A pod bound to a node, with the cards reserved for it there.
struct Reserved<'a> {
    name: String,
    requests: &'a [ContainerRequest],
    planned: Planned,
    /// As its node's kubelet has it; `None` before it has come there.
    there: Option<&'a PodView>,
}

/// Cards reserved for a bound pod.
pub fn of(pod: &Value) -> Option<Planned> {
    let planned = annotation::decode::<Planned>(pod["metadata"]["annotations"][Planned::KEY].as_str()?).ok()?;
    (pod["spec"]["nodeName"] == *planned.node).then_some(planned)
}

/// Checks that a pod's containers hold only cards reserved for them; the error names the others.
pub fn kept(planned: &Planned, pod: &PodView) -> Result<(), String> {
    for container in pod.containers.iter().filter(|container| container.request.is_some()) {
        let reserved = planned.containers.get(&container.name).map(cards).unwrap_or_default();
        let held = container.cards();
        if !held.is_subset(&reserved) {
            return Err(format!("{} container {}: reserved {reserved:?}, holds {held:?}", pod.name, container.name));
        }
    }
    Ok(())
}

/// Checks that all that is reserved for the node's living pods fits on its cards (I5): a pod that holds its
/// cards counts with these, one that is yet to come with all that it may be given. One that the node gave others, since it
/// knew better, is the node's affair (I1). `known`: the pods, by UID, that have come to the node's kubelet.
pub fn fit(
    server: &ApiServer,
    node: &NodeView,
    requests: &Requests,
    known: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let reserved = server.read(|view| reserved(view, node, requests, known));
    let is_kept = |own: &&Reserved<'_>| own.there.is_none_or(|pod| kept(&own.planned, pod).is_ok());
    let counted: Vec<_> = reserved.iter().filter(is_kept).collect();
    for card in &node.cards {
        let shares = counted.iter().map(|own| (&own.name, own.share_of(card)));
        let shares: Vec<_> = shares.filter(|(_, share)| *share != Share::default()).collect();
        let sum = shares.iter().fold(Held::default(), |held, (_, share)| held.with(share));
        if sum.memory > card.memory || sum.cores > Cores::FULL || (sum.exclusive && sum.pods > 1) {
            let shares: Vec<String> = shares.iter().map(|(name, share)| format!("{name} {share}")).collect();
            return Err(format!("card {}: reserved more than once: {}", card.id, shares.join("; ")));
        }
    }
    Ok(())
}

fn reserved<'a>(
    view: &View<'_>,
    node: &'a NodeView,
    requests: &'a Requests,
    known: impl Fn(&str) -> bool,
) -> Vec<Reserved<'a>> {
    let read = |pod: &Value| {
        let metadata = &pod["metadata"];
        let uid = metadata["uid"].as_str()?;
        let there = node.pods.iter().find(|own| own.uid == uid);
        let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
            || metadata["deletionTimestamp"].is_string()
            || (known(uid) && there.is_none());
        let planned = of(pod).filter(|_| !over)?;
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        Some(Reserved { name, requests: requests.get(uid)?, planned, there })
    };
    let pods = view.all_kept("Pod");
    pods.iter().filter(|pod| pod["spec"]["nodeName"] == *node.name).filter_map(|pod| read(pod)).collect()
}

fn cards(planned: &PlannedCards) -> BTreeSet<&str> {
    planned.chosen.iter().chain(&planned.reused).map(divvy_api::CardId::as_str).collect()
}

// === impl Reserved ===

impl Reserved<'_> {
    /// What it takes of a card at its peak.
    fn share_of(&self, card: &CardView) -> Share {
        peak(self.requests.iter().map(|container| {
            let held = self.there.iter().flat_map(|pod| &pod.containers).find(|own| own.name == container.name);
            let held = held.map(|own| own.cards()).filter(|held| !held.is_empty());
            let on = held.or_else(|| self.planned.containers.get(&container.name).map(cards)).unwrap_or_default();
            let share = container
                .request
                .filter(|_| on.contains(card.id.as_str()))
                .map(|request| request.share_on(card.memory));
            (container.kind, share.unwrap_or_default())
        }))
    }
}

#[cfg(test)]
mod tests {
    use divvy_api::request::Sharing;
    use divvy_api::{ContainerKind, GpuRequest, Memory};
    use serde_json::json;

    use super::*;
    use divvy_testkit::outside::ContainerView;

    const CARDS: [&str; 2] = ["GPU-a", "GPU-b"];

    fn node() -> NodeView {
        let card = |id: &str| CardView {
            id: id.parse().expect("a UUID"),
            model: "T4".to_owned(),
            memory: Memory::mib(1000),
            numa: None,
            healthy: true,
        };
        NodeView { name: "n".to_owned(), cards: CARDS.map(card).into(), ..NodeView::default() }
    }

    /// These pods request a whole card each.
    fn requests(uids: &[&str]) -> Requests {
        let request = GpuRequest::whole(1);
        let container = ContainerRequest {
            name: "main".to_owned(),
            kind: ContainerKind::App,
            request: Some(request),
            profile: None,
            counted: request.totals(),
        };
        uids.iter().map(|uid| ((*uid).to_owned(), vec![container.clone()])).collect()
    }

    /// Slots of this card are set aside for it.
    fn there(uid: &str, card: &str) -> PodView {
        let container = ContainerView {
            name: "main".to_owned(),
            kind: ContainerKind::App,
            request: Some(GpuRequest::whole(1)),
            running: false,
            slots: [format!("{card}::0")].into(),
            given: None,
        };
        PodView {
            uid: uid.to_owned(),
            name: "default/one".to_owned(),
            sharing: Sharing::Part,
            containers: vec![container],
        }
    }

    /// Its UID.
    fn reservation(server: &ApiServer, name: &str, card: &str) -> String {
        let planned = json!({ "version": "v1", "node": "n", "containers": { "main": { "chosen": [card] } } });
        let metadata = json!({ "name": name, "annotations": { Planned::KEY: planned.to_string() } });
        let spec = json!({ "nodeName": "n", "containers": [{ "name": "main" }] });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec });
        server.create(&pod).expect("a pod")["metadata"]["uid"].as_str().expect("a UID").to_owned()
    }

    #[tokio::test]
    async fn card_reserved_twice_is_found_before_it_is_held() {
        let server = ApiServer::start(&[]).await.expect("an API server");
        let (mut node, one) = (node(), reservation(&server, "one", "GPU-a"));
        let fit = |node: &NodeView, uids: &[&str]| fit(&server, node, &requests(uids), |_| false);
        assert_eq!(fit(&node, &[&one]), Ok(()));
        let other = reservation(&server, "other", "GPU-a");
        let both = [&*one, &*other];
        let twice = fit(&node, &both).expect_err("overfilled");
        assert!(twice.starts_with("card GPU-a: reserved more than once: one "), "{twice}");
        node.pods = vec![there(&one, "GPU-a")];
        assert!(fit(&node, &both).is_err(), "held by the one, reserved for the other");
        node.pods = vec![there(&one, "GPU-b")];
        assert_eq!(fit(&node, &both), Ok(()), "the node has moved one of them");
        node.pods.clear();
        server.delete("Pod", "default", "one", None).expect("it is there");
        assert_eq!(fit(&node, &both), Ok(()), "and it is over");
    }

    #[tokio::test]
    async fn reservation_is_kept_by_its_cards_alone() {
        let server = ApiServer::start(&[]).await.expect("an API server");
        reservation(&server, "one", "GPU-a");
        let planned = of(&server.get("Pod", "default", "one").expect("a pod")).expect("a reservation");
        assert_eq!(kept(&planned, &there("one", "GPU-a")), Ok(()));
        let moved = kept(&planned, &there("one", "GPU-b")).expect_err("moved");
        assert_eq!(moved, "default/one container main: reserved {\"GPU-a\"}, holds {\"GPU-b\"}");
    }
}

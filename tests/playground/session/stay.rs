//! The cluster after the run, for whoever has a kubectl: pods that are created now are scheduled too.

use divvy_api::annotation::Preferences;
use k8s_openapi::api::core::v1;
use serde_json::{Value, json};

use super::{Session, admission};
use crate::cluster::Node;
use divvy_testkit::pods::PodShape;
use fake_kubelet::spec;

impl Session {
    /// Says how to get in, and schedules pods for ever.
    pub async fn stay(&mut self) -> anyhow::Result<()> {
        self.console.plain(&self.invitation());
        if self.front.is_some() {
            // The scheduler does it.
            return std::future::pending().await;
        }
        let (mut feed, _there) = self.control_plane.server.feed("Pod");
        loop {
            for pod in self.control_plane.server.list("Pod") {
                let bound = pod["spec"]["nodeName"].is_string() || pod["metadata"]["deletionTimestamp"].is_string();
                if !bound {
                    self.schedule(serde_json::from_value(pod)?).await;
                }
            }
            feed.next().await;
        }
    }

    fn invitation(&self) -> String {
        let busiest = self.nodes.iter().max_by_key(|node| node.view.pods.len());
        let node = busiest.map_or("", |node| &node.name);
        let kubeconfig = self.control_plane.kubeconfig.display();
        [
            "\nready: the cluster stays until Ctrl-C, and pods that you create are scheduled. In another terminal:"
                .into(),
            format!("  export KUBECONFIG={kubeconfig}"),
            "  kubectl get gpunodes".into(),
            "  kubectl get pods -o wide --watch".into(),
            format!("  kubectl describe node {node}"),
        ]
        .join("\n")
    }

    /// Binds a pod to the best node, and waits until it is admitted there; or says in its status why none fits.
    async fn schedule(&mut self, pod: v1::Pod) {
        for node in &mut self.nodes {
            node.look(&self.requests);
        }
        let (metadata, containers) = (&pod.metadata, spec::containers(&pod));
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (namespace, name, uid) = (text(&metadata.namespace), text(&metadata.name), text(&metadata.uid));
        let annotations = metadata.annotations.clone().unwrap_or_default();
        let preferences = Preferences::from_annotations(&annotations);
        let shape = PodShape { containers, annotations, ..PodShape::new(name.clone()) };
        let chosen = match (shape.requests(), preferences) {
            (Ok(requests), Ok(preferences)) => {
                let choice = fake_scheduler::choose(&self.scenes(), &requests, &preferences, 0);
                choice.map(|choice| (choice.node, requests, Some(choice.planned)))
            }
            // Any node can say what is wrong with it.
            _ => Ok((0, Vec::new(), None)),
        };
        match chosen {
            Ok((at, requests, planned)) => {
                let Node { name: node, kubelet, .. } = &self.nodes[at];
                // Somebody may have been faster, or have deleted it.
                if self.control_plane.bind(&namespace, &name, node, planned.as_ref()).is_ok() {
                    self.requests.insert(uid.clone(), requests);
                    admission(kubelet, &uid).await;
                }
            }
            Err(reason) => self.pend(&namespace, &name, &reason),
        }
    }

    fn pend(&self, namespace: &str, name: &str, reason: &str) {
        let condition =
            json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": reason });
        let conditions = json!([condition]);
        let server = &self.control_plane.server;
        let said = |pod: Value| pod["status"]["conditions"] == conditions;
        if !server.get("Pod", namespace, name).is_none_or(said) {
            // It may have been deleted meanwhile.
            drop(server.edit("Pod", namespace, name, |pod| pod["status"]["conditions"] = conditions.clone()));
        }
    }
}

//! Pods in a cluster of nodes alone: created, and bound by us to the node that seems best.

use std::sync::Arc;

use divvy_api::annotation::Preferences;
use rand::RngExt as _;

use super::{Placed, Session, Submitted};
use crate::arrivals::Offer;
use crate::cluster::Node;
use crate::report::Reason;
use divvy_testkit::pods::{Fate, NAMESPACE};
use fake_scheduler::Scene;

impl Session {
    /// Chooses nodes, for one pod beside the other; pods that fit nowhere are dropped.
    pub(super) fn place_all(&mut self, offers: Vec<Offer>) -> Vec<Placed> {
        let mut scenes = self.scenes();
        self.past.remember(&scenes);
        offers.into_iter().filter_map(|offer| self.place(offer, &mut scenes)).collect()
    }

    pub(super) fn scenes(&self) -> Vec<Scene> {
        let scene = |node: &Node| Scene { name: node.name.clone(), state: node.view.to_placement(&node.links) };
        self.nodes.iter().map(scene).collect()
    }

    /// Chooses a node; one choice in twenty is made from an old view. `None`: no node fits, and the pod is dropped.
    fn place(&mut self, offer: Offer, scenes: &mut [Scene]) -> Option<Placed> {
        self.report.offered += 1;
        let Offer { at, end, shape } = offer;
        let mut shape = shape.translated();
        let anywhere = self.rng.random_range(0..self.nodes.len());
        let preferences = Preferences::from_annotations(&shape.annotations);
        let (Ok(requests), Ok(preferences)) = (shape.requests(), preferences) else {
            return Some(Placed { node: anywhere, shape, requests: Vec::new(), planned: None, at, end });
        };
        let stale = self.past.stale().filter(|_| self.rng.random_bool(0.05));
        let seed = self.rng.random();
        match fake_scheduler::choose(stale.map_or(&*scenes, |stale| stale), &requests, &preferences, seed) {
            Ok(choice) => {
                let is_fresh = stale.is_none();
                if shape.fate == Fate::Runs && self.rng.random_bool(0.75) {
                    shape.normalise(&requests);
                }
                let planned = (shape.fate == Fate::Runs && self.rng.random_bool(0.5)).then(|| choice.planned.clone());
                if is_fresh {
                    choice.reserve(scenes, &requests);
                }
                Some(Placed { node: choice.node, shape, requests, planned, at, end })
            }
            Err(_) if shape.fate != Fate::Runs => {
                Some(Placed { node: anywhere, shape, requests: Vec::new(), planned: None, at, end })
            }
            Err(text) => {
                self.refuse("-", &format!("{NAMESPACE}/{}", shape.name), Reason::unschedulable(text));
                None
            }
        }
    }

    /// Creates and binds it.
    pub(super) fn submit(&mut self, placed: Placed) -> anyhow::Result<Submitted> {
        let Node { name, kubelet, .. } = &self.nodes[placed.node];
        let uid = self.control_plane.submit(&placed.shape, name, placed.planned.as_ref())?;
        let kubelet = Arc::clone(kubelet);
        self.requests.insert(uid.clone(), placed.requests.clone());
        Ok(Submitted { placed, uid, kubelet })
    }
}

//! Pods that come as a user's do: created without a node, reviewed by the webhook, and bound by the scheduler and its
//! extender. Those that find no room wait.

use std::sync::Arc;
use std::time::Duration;

use divvy_api::annotation::{Planned, Preferences};
use rand::RngExt as _;

use super::{Placed, Session, Submitted};
use crate::arrivals::Offer;
use crate::checks::Invariant;
use crate::cluster::{Node, PATIENCE};
use crate::front::{self, Door, Front};
use crate::report::Reason;
use crate::reservations;
use crate::webhook::{Kill, Webhook};
use divvy_testkit::pods::{Fate, NAMESPACE};
use fake_apiserver::{ApiServer, View};

/// A pod that has no node yet.
pub(super) struct Waiting {
    offer: Offer,
    uid: String,
}

/// What became of a pod at first.
enum Tried {
    Denied(Reason),
    Bound { uid: String },
    Waits { uid: String, why: Reason },
    Undecided,
}

impl Session {
    /// Creates all pods, then waits until the scheduler has tried each. Those that have a node are returned, and with them
    /// those that have waited until now.
    pub(super) async fn schedule_all(
        &mut self,
        front: &mut Front,
        offers: Vec<Offer>,
    ) -> anyhow::Result<Vec<Submitted>> {
        let mut submitted = self.called(offers.last().map_or(0.0, |offer| offer.at));
        let kill = self.draw_kill();
        let Front { webhook, door, .. } = front;
        let killed = async {
            match kill {
                Some((kill, after)) => webhook.kill(kill, after).await,
                None => Ok(()),
            }
        };
        let (tried, killed) = tokio::join!(try_all(&self.control_plane.server, door, offers), killed);
        killed?;
        for (offer, tried) in tried? {
            self.report.offered += 1;
            match tried {
                Tried::Denied(why) => self.deny(&offer, why),
                Tried::Bound { uid } => submitted.extend(self.submitted(offer, uid)),
                Tried::Waits { uid, why } => self.wait(webhook, Waiting { offer, uid }, &why).await,
                Tried::Undecided => {
                    let name = format!("{NAMESPACE}/{}", offer.shape.name);
                    let found = format!("{name}: neither bound nor refused within {} s", PATIENCE.as_secs());
                    self.report.checks.note(Invariant::Recovery, "scheduler", Err(found));
                }
            }
        }
        self.report.checks.note(Invariant::Recovery, "divvy-webhook", webhook.ended());
        Ok(submitted)
    }

    /// Now and then the end of a replica, and how long from now.
    fn draw_kill(&mut self) -> Option<(Kill, Duration)> {
        // Each kind soon, so that a short session has them all.
        let one_in = if self.kills < Kill::ALL.len() { 5 } else { 15 };
        if !self.report.settings.chaos || self.rng.random_range(0..one_in) > 0 {
            return None;
        }
        let kill = Kill::ALL[self.kills % Kill::ALL.len()];
        self.kills += 1;
        self.console.node("-", &format!("** {}", kill.name()));
        *self.report.chaos.entry(kill.name().to_owned()).or_default() += 1;
        Some((kill, Duration::from_micros(self.rng.random_range(0..50_000))))
    }

    fn deny(&mut self, offer: &Offer, why: Reason) {
        let name = format!("{NAMESPACE}/{}", offer.shape.name);
        let found = match offer.shape.fate {
            Fate::Refused => Ok(()),
            Fate::Runs | Fate::Waits => Err(format!("{name}: makes sense and was refused: {}", why.text)),
        };
        self.report.checks.note(Invariant::Refusal, "admission", found);
        self.refuse("-", &name, why);
    }

    /// Keeps a pod until there is room; somebody asks why there is none.
    async fn wait(&mut self, webhook: &Webhook, waiting: Waiting, why: &Reason) {
        let Waiting { offer, uid } = &waiting;
        self.requests.insert(uid.clone(), offer.shape.requests().unwrap_or_default());
        let name = format!("{NAMESPACE}/{}", offer.shape.name);
        // A replica may be killed while it answers; the scheduler has said something in any case.
        let explained = webhook.explain(&offer.shape.name).await.ok().flatten();
        if offer.shape.fate == Fate::Waits && !self.report.settings.chaos {
            let found = explained.as_ref().map(drop).ok_or_else(|| format!("{name}: waits, and nobody can say why"));
            self.report.checks.note(Invariant::Refusal, "divvy-webhook", found);
        }
        let waited = &mut self.report.waited;
        waited.pods += 1;
        let text = explained.as_ref().unwrap_or(&why.text);
        self.console.said("-", &name, &format!("waits: {text}"));
        match explained {
            Some(text) => {
                waited.explained += 1;
                *waited.texts.entry(text).or_default() += 1;
            }
            None => waited.told += u64::from(!why.text.is_empty()),
        }
        self.waiting.push(waiting);
    }

    /// Whether the node kept what the extender had reserved for it. One that something has happened to may know better.
    pub(super) fn judge(&mut self, node: usize, uid: &str, planned: &Planned, refused: Option<&Reason>) {
        let Node { name, view, .. } = &self.nodes[node];
        let seen = &mut self.report.reservations.seen;
        let found = match (refused, view.pods.iter().find(|pod| pod.uid == uid)) {
            (Some(Reason { kind, text }), _) => {
                seen.refused += 1;
                Err(format!("pod {uid}: refused although cards were reserved: {kind}: {text}"))
            }
            (None, Some(pod)) => {
                let found = reservations::kept(planned, pod);
                if found.is_ok() {
                    seen.kept += 1;
                } else {
                    seen.moved += 1;
                }
                found
            }
            (None, None) => return, // gone already
        };
        if !self.troubled.contains(&node) {
            self.report.checks.note(Invariant::Reservation, name, found);
        } else if let Err(moved) = found {
            self.console.node(name, &format!("reservation not kept: {moved}"));
        }
    }

    /// Waiting pods that have a node by now. Those whose lifetime is over are given up.
    fn called(&mut self, now: f64) -> Vec<Submitted> {
        let mut submitted = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            let name = &waiting.offer.shape.name;
            match self.control_plane.server.read(|view| front::scheduled(view, name)) {
                Some(Ok(_)) => {
                    self.report.waited.placed += 1;
                    let Waiting { mut offer, uid } = waiting;
                    offer.end += now - offer.at;
                    offer.at = now;
                    submitted.extend(self.submitted(offer, uid));
                }
                _ if waiting.offer.end <= now => self.give_up(waiting),
                _ => self.waiting.push(waiting),
            }
        }
        submitted
    }

    /// Nobody waits for the rest any more; in a cluster that stays they are left there.
    pub(super) fn dismiss_waiting(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.give_up(waiting);
        }
    }

    fn give_up(&mut self, Waiting { offer, .. }: Waiting) {
        if !self.stays {
            // It may have been bound this instant: then its kubelet ends it.
            drop(self.control_plane.server.delete("Pod", NAMESPACE, &offer.shape.name, None));
        }
        if offer.shape.fate == Fate::Waits {
            self.report.checks.note(Invariant::Refusal, "scheduler", Ok(()));
        }
        self.report.waited.given_up += 1;
    }

    fn submitted(&mut self, offer: Offer, uid: String) -> Option<Submitted> {
        let Offer { at, end, shape } = offer;
        let pod = self.control_plane.server.get("Pod", NAMESPACE, &shape.name)?;
        let node = self.nodes.iter().position(|own| pod["spec"]["nodeName"] == *own.name)?;
        let valid = Preferences::from_annotations(&shape.annotations).is_ok();
        let requests = shape.requests().ok().filter(|_| valid).unwrap_or_default();
        self.requests.insert(uid.clone(), requests.clone());
        let kubelet = Arc::clone(&self.nodes[node].kubelet);
        Some(Submitted {
            placed: Placed { node, shape, requests, planned: reservations::of(&pod), at, end },
            uid,
            kubelet,
        })
    }
}

/// Creates all pods, then waits until the scheduler has tried each.
async fn try_all(server: &ApiServer, door: &Door, offers: Vec<Offer>) -> anyhow::Result<Vec<(Offer, Tried)>> {
    let mut created = Vec::new();
    for offer in offers {
        let made = door.create(&offer.shape).await?;
        created.push((offer, made));
    }
    let mut tried = Vec::new();
    for (offer, made) in created {
        let name = offer.shape.name.clone();
        let decided = server.wait_for(|view: &View<'_>| front::scheduled(view, &name));
        let outcome = match made {
            Err(why) => Tried::Denied(why),
            Ok(uid) => match tokio::time::timeout(PATIENCE, decided).await {
                Ok(Ok(_)) => Tried::Bound { uid },
                Ok(Err(why)) => Tried::Waits { uid, why },
                Err(_elapsed) => Tried::Undecided,
            },
        };
        tried.push((offer, outcome));
    }
    Ok(tried)
}

//! The end of a run: faults are over, everything must be as it should, and nothing may be left, unless it is to stay.

use std::time::Instant;

use super::Session;
use crate::checks::Invariant;
use crate::cluster::{PATIENCE, SYSTEM};
use crate::picture;
use crate::published::Published;
use divvy_testkit::books::{self, LAG};
use fake_kubelet::{Call, Faults, PodView};

/// Whether the cluster must have heard of it as well.
#[derive(Clone, Copy)]
enum Told {
    Too,
    /// At the daemon's next round, for which nobody waits.
    Later,
}

impl Session {
    /// Cures, checks, draws, and clears the nodes.
    pub(super) async fn finale(&mut self) -> anyhow::Result<()> {
        self.cure().await?;
        self.dismiss_waiting();
        self.changed.extend(0..self.nodes.len());
        self.look();
        for node in 0..self.nodes.len() {
            let found = self.books_agree(node, Told::Too).await;
            self.report.checks.note(Invariant::I2, &self.nodes[node].name, found);
        }
        self.count_reservations().await?;
        for node in &self.nodes {
            self.console.plain("");
            self.console.plain(picture::of(&node.view, self.console.colours).trim_end());
        }
        self.report.held_percent = self.held_percent();
        if !self.stays {
            self.clear().await;
        }
        let calls: Vec<Call> = self.nodes.iter().flat_map(|node| node.kubelet.calls()).collect();
        self.report.time(&calls);
        self.report.writes = self.control_plane.writes();
        self.report.seconds = self.console.elapsed();
        Ok(())
    }

    /// Takes over what the webhook has counted, once nothing is open any more.
    async fn count_reservations(&mut self) -> anyhow::Result<()> {
        let Some(front) = &self.front else { return Ok(()) };
        let start = Instant::now();
        while front.webhook.open_reservations().await? > 0 && start.elapsed() < LAG {
            tokio::time::sleep(LAG / 100).await;
        }
        if !self.report.settings.chaos {
            let found = match front.webhook.open_reservations().await? {
                0 => Ok(()),
                open => Err(format!("{open} reservations are still open")),
            };
            self.report.checks.note(Invariant::Recovery, "divvy-webhook", found);
        }
        self.report.reservations.counted = front.webhook.predictions().await?;
        Ok(())
    }

    /// Ends all faults; every card must come back.
    async fn cure(&mut self) -> anyhow::Result<()> {
        for affliction in std::mem::take(&mut self.afflictions) {
            affliction.cure(&mut self.nodes)?;
        }
        for node in &mut self.nodes {
            node.kubelet.set_faults(|faults| *faults = Faults::default());
            let found = node.healthy().await.map_err(|error| error.to_string());
            self.report.checks.note(Invariant::Recovery, &node.name, found);
        }
        Ok(())
    }

    /// Whether the daemon's books say what containers were given, a little later at most; and the API server.
    async fn books_agree(&mut self, node: usize, told: Told) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let node = &mut self.nodes[node];
            node.view.look(&node.kubelet.view(), &self.requests);
            let expected = books::expected(&node.view);
            let found = match books::read_with_revision(node.daemon.pages()).await {
                Ok((found, revision)) => books::difference(&expected, &found).and_then(|()| match told {
                    Told::Too => Published::read(&self.control_plane.server, &node.view)?.agrees(&node.view, revision),
                    Told::Later => Ok(()),
                }),
                Err(error) => Err(format!("{error:#}")),
            };
            if found.is_ok() || start.elapsed() > LAG {
                return found;
            }
            tokio::time::sleep(LAG / 100).await;
        }
    }

    /// Deletes every pod; the books must end empty.
    async fn clear(&mut self) {
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let is_ours = |pod: &PodView| pod.namespace != SYSTEM;
            for pod in node.kubelet.view().pods.values().filter(|pod| is_ours(pod)) {
                // One that has just gone by itself is as good.
                drop(self.control_plane.server.delete("Pod", &pod.namespace, &pod.name, None));
            }
            let gone = node.kubelet.wait_until(|view| !view.pods.values().any(is_ours));
            let gone = tokio::time::timeout(PATIENCE, gone).await;
            let agree = self.books_agree(at, Told::Later).await;
            let node = &self.nodes[at];
            let found = match gone {
                Err(_elapsed) => Err(format!("pods that were deleted are still there: {}", node.view.pods.len())),
                Ok(()) => agree,
            };
            self.report.checks.note(Invariant::Recovery, &node.name, found);
        }
    }

    fn held_percent(&self) -> f64 {
        let mut parts = Vec::new();
        for node in &self.nodes {
            for card in &node.view.cards {
                let held = node.view.held(card);
                let mib = |memory: divvy_api::Memory| f64::from(u32::try_from(memory.as_mib()).unwrap_or(u32::MAX));
                parts.push((mib(held.memory) / mib(card.memory)).max(f64::from(held.cores.units()) / 100.0));
            }
        }
        let count = f64::from(u32::try_from(parts.len()).unwrap_or(u32::MAX));
        if parts.is_empty() { 0.0 } else { 100.0 * parts.iter().sum::<f64>() / count }
    }
}

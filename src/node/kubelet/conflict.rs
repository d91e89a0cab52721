//! Conflicting device plugins: others that serve the same GPUs or the same resource. Two plugins that allocate one GPU
//! independently overcommit it.
//!
//! The evidence is the kubelet's list of allocatable devices (`GetAllocatableResources`), which names every registered
//! resource with the device IDs that its plugin lists. The other plugins themselves are not called: many of them, NVIDIA's
//! among them, serve a second `ListAndWatch` from the same channel as the first, so the kubelet would miss updates.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use divvy_node_core::foreign;
use divvy_proto::deviceplugin as api;
use tokio::net::UnixStream;

use super::advertise::Offer;

/// Healthy device that the kubelet lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Resource that the device is registered under.
    pub resource: String,
    /// Device ID.
    pub device: String,
}

/// Device plugin that serves this node's GPUs beside Divvy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConflictingPlugin {
    /// Whether the plugin serves a resource that the daemon registers; otherwise it offers the GPUs under another name.
    pub(super) same_resource: bool,
    /// Evidence in words, for logs and conditions.
    pub(super) evidence: String,
}

/// Verdict from evidence over time. Evidence must last before it counts, as the kubelet takes a moment to process lists and
/// ends of streams; and it must be absent as long before the conflict is over, as both plugins register again when the
/// kubelet restarts, in any order.
#[derive(Debug)]
pub(super) struct ConflictTracker {
    patience: Duration,
    verdict: Verdict,
    /// Time since which observations contradict the verdict.
    contradicted: Option<Instant>,
    /// Whether there has been evidence since this was last asked.
    has_found: bool,
}

/// Whether a conflicting plugin is registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    #[default]
    None,
    /// Evidence that hasn't lasted yet: no reason to unregister, and none to register.
    Suspected,
    Confirmed(ConflictingPlugin),
}

/// Longest wait for a connection to another plugin's socket.
const CONNECTING: Duration = Duration::from_millis(200);
/// Characters of a command line that are logged.
const COMMAND_LENGTH: usize = 80;

/// The conflicting plugin that the kubelet's list shows, if any. `ours`: what the daemon lists; `registered`: whether the
/// daemon is registered, so that the kubelet's list may come from it.
pub(super) fn find(listed: &[Listed], ours: &[Offer], registered: bool) -> Option<ConflictingPlugin> {
    let devices = || ours.iter().flat_map(|offer| &offer.devices);
    let cards: BTreeSet<&str> = devices().filter_map(|device| Some(device.id.split_once("::")?.0)).collect();
    let offers_ours =
        |other: &&Listed| foreign::hides_cards(&other.resource) || cards.iter().any(|card| other.device.contains(card));
    let is_named_as_ours = |listed: &&Listed| ours.iter().any(|offer| offer.resource.as_str() == listed.resource);
    if let Some(Listed { resource, device }) = listed.iter().filter(|other| !is_named_as_ours(other)).find(offers_ours)
    {
        let evidence =
            format!("another device plugin offers this node's GPUs as {resource}, with devices such as {device}");
        return Some(ConflictingPlugin { same_resource: false, evidence });
    }
    ours.iter().find_map(|offer| serves_ours(listed, offer, registered))
}

/// The plugin that serves this offer's resource in place of the daemon, if any.
fn serves_ours(listed: &[Listed], Offer { resource, devices }: &Offer, registered: bool) -> Option<ConflictingPlugin> {
    let same: Vec<&Listed> = listed.iter().filter(|listed| listed.resource == resource.as_str()).collect();
    let known: BTreeSet<&str> = devices.iter().map(|device| device.id.as_str()).collect();
    let foreign = same.iter().find(|listed| !registered || !known.contains(listed.device.as_str()));
    let evidence = if let Some(Listed { device, .. }) = foreign {
        format!("another device plugin serves {resource}, with devices such as {device}")
    } else {
        // Shared devices of NVIDIA's plugin are named like ours, but there are others of them.
        let healthy = devices.iter().filter(|device| device.health == api::HEALTHY).count();
        let fewer = !same.is_empty() && same.len() < healthy;
        fewer.then(|| {
            format!("another device plugin serves {resource}, with {} devices instead of Divvy's {healthy}", same.len())
        })?
    };
    Some(ConflictingPlugin { same_resource: true, evidence })
}

/// Sockets in the plugin directory on which a process listens, apart from `except`, each with process ID and command where
/// those are visible. A plugin that has died leaves a socket that accepts no connection.
pub(super) async fn listening(directory: &Path, except: &[String]) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let sockets = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let names = sockets.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names: BTreeSet<String> = names.filter(|name| !except.contains(name)).collect();
    let mut listening = Vec::new();
    for name in names {
        let connected = tokio::time::timeout(CONNECTING, UnixStream::connect(directory.join(&name))).await;
        let Ok(Ok(stream)) = connected else { continue };
        // 0: a process outside of this PID namespace.
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).filter(|pid| *pid > 0);
        listening.push(match pid {
            Some(pid) => format!("{name} (process {pid}{})", command(pid)),
            None => name,
        });
    }
    listening
}

fn command(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let line: String = words.join(" ").trim().chars().take(COMMAND_LENGTH).collect();
    if line.is_empty() { line } else { format!(": {line}") }
}

// === impl ConflictTracker ===

impl ConflictTracker {
    /// A tracker for which evidence counts after `patience`, and is over after as long without any.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, verdict: Verdict::None, contradicted: None, has_found: false }
    }

    /// Records the observation made at `at`.
    pub(super) fn observe(&mut self, at: Instant, found: Option<ConflictingPlugin>) {
        self.has_found |= found.is_some();
        let agrees = found.is_some() == matches!(self.verdict, Verdict::Confirmed(_));
        let since = if agrees { None } else { Some(*self.contradicted.get_or_insert(at)) };
        self.contradicted = since;
        let lasts = since.is_some_and(|since| at.saturating_duration_since(since) >= self.patience);
        match (found, &self.verdict) {
            (Some(plugin), Verdict::Confirmed(_)) => self.verdict = Verdict::Confirmed(plugin),
            (Some(plugin), _) if lasts => (self.verdict, self.contradicted) = (Verdict::Confirmed(plugin), None),
            (Some(_), _) => self.verdict = Verdict::Suspected,
            (None, Verdict::Confirmed(_)) if !lasts => {}
            (None, _) => (self.verdict, self.contradicted) = (Verdict::None, None),
        }
    }

    /// Whether there was evidence since the last call, however short: the other plugin may have allocated something.
    pub(super) fn take_found(&mut self) -> bool {
        std::mem::take(&mut self.has_found)
    }

    /// Current verdict.
    pub(super) fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

#[cfg(test)]
mod tests;

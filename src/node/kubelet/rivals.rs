//! Other plugins of the same cards, or of our resource: two that hand out one card, each by its own books, overfill it.
//!
//! The kubelet's own list of allocatable devices is the evidence: it names every registered resource with the IDs that
//! its plugin lists, and asking for it disturbs nobody. Asking the other plugins themselves would: many of them,
//! NVIDIA's among them, serve a second `ListAndWatch` from the same channel as the first, so that the kubelet would
//! miss what we hear.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use divvy_proto::deviceplugin as api;
use tokio::net::UnixStream;

use super::advertise::Offer;

/// A healthy device that the kubelet lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The resource that it is registered under.
    pub resource: String,
    /// As its plugin names it.
    pub device: String,
}

/// A plugin that stands in our way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rival {
    /// It serves the resource that we register; otherwise it offers our cards under another name.
    pub(super) same_resource: bool,
    /// What gives it away, for people.
    pub(super) evidence: String,
}

/// What is made of evidence over time. It must last before it counts, as the kubelet takes a moment to follow lists and
/// ends of streams; and it must be away as long before it is over, as both plugins register anew when the kubelet
/// restarts, in whatever order.
#[derive(Debug)]
pub(super) struct Rivalry {
    patience: Duration,
    verdict: Verdict,
    /// Since when observations contradict the verdict.
    contradicted: Option<Instant>,
}

/// Whether there is a rival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    #[default]
    Nobody,
    /// Too early to tell: no reason to go, and none to come.
    Perhaps,
    Somebody(Rival),
}

/// Longest wait for another plugin's socket to take a connection.
const CONNECTING: Duration = Duration::from_millis(200);
/// Most of a command line that is worth showing.
const COMMAND_LENGTH: usize = 80;

/// The rival that the kubelet's list shows. `ours`: what we list; `registered`: the kubelet has it from us.
pub(super) fn find(listed: &[Listed], ours: &[Offer], registered: bool) -> Option<Rival> {
    let devices = || ours.iter().flat_map(|offer| &offer.devices);
    let cards: BTreeSet<&str> = devices().filter_map(|device| Some(device.id.split_once("::")?.0)).collect();
    let offers_ours = |other: &&Listed| cards.iter().any(|card| other.device.contains(card));
    let is_named_as_ours = |listed: &&Listed| ours.iter().any(|offer| offer.resource.as_str() == listed.resource);
    if let Some(Listed { resource, device }) = listed.iter().filter(|other| !is_named_as_ours(other)).find(offers_ours)
    {
        let evidence = format!("another device plugin offers our cards as {resource}, such as {device}");
        return Some(Rival { same_resource: false, evidence });
    }
    ours.iter().find_map(|offer| serves_ours(listed, offer, registered))
}

/// Somebody else's devices under the name of ours.
fn serves_ours(listed: &[Listed], Offer { resource, devices }: &Offer, registered: bool) -> Option<Rival> {
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
            format!("another device plugin serves {resource}, with {} devices for our {healthy}", same.len())
        })?
    };
    Some(Rival { same_resource: true, evidence })
}

/// Who listens on sockets in the plugin directory, apart from `except`: socket, process and command, where we may see
/// them. A plugin that has died leaves a socket that takes no connection.
pub(super) async fn listening(directory: &Path, except: &[String]) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let sockets = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let names = sockets.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names: BTreeSet<String> = names.filter(|name| !except.contains(name)).collect();
    let mut listening = Vec::new();
    for name in names {
        let connected = tokio::time::timeout(CONNECTING, UnixStream::connect(directory.join(&name))).await;
        let Ok(Ok(stream)) = connected else { continue };
        // 0: a process outside of our PID namespace.
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

// === impl Rivalry ===

impl Rivalry {
    /// Evidence counts after `patience`, and is over after as long without any.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, verdict: Verdict::Nobody, contradicted: None }
    }

    /// Takes in what was seen at `at`.
    pub(super) fn observe(&mut self, at: Instant, seen: Option<Rival>) {
        let agrees = seen.is_some() == matches!(self.verdict, Verdict::Somebody(_));
        let since = if agrees { None } else { Some(*self.contradicted.get_or_insert(at)) };
        self.contradicted = since;
        let lasts = since.is_some_and(|since| at.saturating_duration_since(since) >= self.patience);
        match (seen, &self.verdict) {
            (Some(rival), Verdict::Somebody(_)) => self.verdict = Verdict::Somebody(rival),
            (Some(rival), _) if lasts => (self.verdict, self.contradicted) = (Verdict::Somebody(rival), None),
            (Some(_), _) => self.verdict = Verdict::Perhaps,
            (None, Verdict::Somebody(_)) if !lasts => {}
            (None, _) => (self.verdict, self.contradicted) = (Verdict::Nobody, None),
        }
    }

    /// What it comes to.
    pub(super) fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

#[cfg(test)]
mod tests;

//! Configuration of this node at start, and reload after changes.
//!
//! A change of any key takes effect by executing the program again in the same process: every part is built from one
//! configuration, and running pods are not affected. A file that can't be read changes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use divvy_runtime::logging::WarnOnce;
use futures::future::{join_all, select_all};
use tokio::sync::watch;
use tracing::info;

use super::settings;
use crate::apiserver;
use crate::apiserver::desired::Desired;
use crate::args::{Effective, Sources};
use crate::config::{Config, ConfigError};
use crate::container::isolation;
use crate::kubelet::socket::DirectoryWatch;
use crate::states::ConfigStatus;

/// Longest wait at start for the node's labels from the API server. After that the saved ones are used.
const LABELS: Duration = Duration::from_secs(5);
/// Time for which a file must be unchanged: editors and copies write theirs piece by piece.
const WRITTEN: Duration = Duration::from_millis(100);

/// Text of `/config` for the effective configuration and the selected tier.
pub(super) fn shown(effective: &Effective, tier: &str) -> ConfigStatus {
    ConfigStatus { text: format!("# tier in effect: {tier}\n{}", effective.to_yaml()), problem: None }
}

/// Configuration and desired state of this node. The node's labels are requested only if there are overrides.
pub(super) async fn configure(sources: &Sources) -> Result<(Effective, Desired), ConfigError> {
    let base = sources.effective(&BTreeMap::new())?;
    let mut desired = Desired::load(&base.config.state_dir);
    if !base.by_labels {
        return Ok((base, desired));
    }
    if let Ok(Ok(labels)) = tokio::time::timeout(LABELS, labels(&base.config)).await {
        desired.labels = labels;
    }
    Ok((sources.effective(&desired.labels)?, desired))
}

async fn labels(config: &Config) -> anyhow::Result<BTreeMap<String, String>> {
    let api_server = settings::api_server(config).await?.context("neither in a cluster nor given a kubeconfig")?;
    apiserver::node_labels(api_server.client, &config.node_name).await
}

/// Watches the file and the node's labels; returns once they result in a valid configuration other than `effective`. `tier`: the
/// selected one.
pub(super) async fn changed(
    sources: Sources,
    mut effective: Effective,
    tier: String,
    mut desired: watch::Receiver<Desired>,
    shown: watch::Sender<ConfigStatus>,
) {
    let files: Vec<&Path> = sources.files().collect();
    if files.is_empty() {
        return std::future::pending().await;
    }
    let mut watches: Vec<_> =
        files.iter().map(|file| DirectoryWatch::new(file.parent().unwrap_or(Path::new("/")))).collect();
    let mut warning = WarnOnce::default();
    let mut known = None;
    loop {
        let seen = (join_all(files.iter().map(|file| written(file))).await, desired.borrow_and_update().labels.clone());
        if known.as_ref() != Some(&seen) {
            let read = sources.effective(&seen.1);
            match read.and_then(|new| isolation::select(&new.config).map(|_choice| new)) {
                Ok(new) if new.config != effective.config => return say(&effective.config, &new.config),
                Ok(new) => {
                    warning.clear();
                    effective = new;
                    shown.send_replace(self::shown(&effective, &tier));
                }
                Err(error) => {
                    let problem = format!("{error}; what was read before stays in effect");
                    warning.warn(problem.clone());
                    shown.send_modify(|shown| shown.problem = Some(problem));
                }
            }
            known = Some(seen);
        }
        let changed = select_all(watches.iter_mut().map(|watch| Box::pin(watch.changed())));
        tokio::select! { _ = changed => {}, Ok(()) = desired.changed() => {} }
    }
}

/// Content of the file, once it is unchanged; `None` if it can't be read.
async fn written(file: &Path) -> Option<Vec<u8>> {
    let mut last = std::fs::read(file).ok();
    loop {
        tokio::time::sleep(WRITTEN).await;
        let now = std::fs::read(file).ok();
        if now == last {
            return now;
        }
        last = now;
    }
}

fn say(before: &Config, after: &Config) {
    let before = before.to_yaml();
    let after = after.to_yaml();
    let news = after.lines().filter(|line| !before.lines().any(|known| known == *line));
    info!(changed = news.collect::<Vec<_>>().join(", "), "the configuration has changed: restarting");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(file: &Path) -> Sources {
        let args = ["divvy-node".into(), "--node-name=n1".into(), "--config-file".into(), file.into()];
        crate::args::parse(args, |_| None).expect("valid")
    }

    struct Running {
        task: tokio::task::JoinHandle<()>,
        desired: watch::Sender<Desired>,
        shown: watch::Receiver<ConfigStatus>,
    }

    fn start(file: &Path) -> Running {
        let sources = sources(file);
        let effective = sources.effective(&BTreeMap::new()).expect("valid");
        let (desired, wants) = watch::channel(Desired::default());
        let (sender, shown) = watch::channel(ConfigStatus::default());
        Running {
            task: tokio::spawn(changed(sources, effective, "accounting (a test)".to_owned(), wants, sender)),
            desired,
            shown,
        }
    }

    async fn ends(running: Running) {
        tokio::time::timeout(Duration::from_secs(60), running.task).await.expect("within a minute").expect("no panic");
    }

    async fn shows(running: &mut Running, what: &str, holds: impl Fn(&ConfigStatus) -> bool) {
        let seen = tokio::time::timeout(Duration::from_secs(60), running.shown.wait_for(holds)).await;
        assert!(seen.is_ok(), "not within a minute: {what}");
    }

    #[tokio::test]
    async fn invalid_file_keeps_the_last_valid_configuration() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("divvy-node.yaml");
        std::fs::write(&file, "version: v1\nslotsPerCard: 8\n").expect("written");
        let mut running = start(&file);
        shows(&mut running, "the first configuration", |shown| shown.text.contains("slotsPerCard: 8")).await;
        std::fs::write(&file, "version: v1\nslotsPerCard: many\n").expect("written");
        shows(&mut running, "the problem", |shown| {
            shown.problem.as_ref().is_some_and(|problem| problem.contains("\"many\" is not a whole number"))
        })
        .await;
        assert!(running.shown.borrow().text.contains("slotsPerCard: 8"));
        std::fs::write(&file, "version: v1\nslotsPerCard: 8 # as before\n").expect("written");
        shows(&mut running, "no problem", |shown| shown.problem.is_none()).await;
        std::fs::write(&file, "version: v1\nslotsPerCard: 9\n").expect("written");
        ends(running).await;
    }

    #[tokio::test]
    async fn swapped_config_map_is_reloaded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        for (version, slots) in [("..1", 8), ("..2", 9)] {
            std::fs::create_dir(path(version)).expect("a directory");
            let text = format!("version: v1\nslotsPerCard: {slots}\n");
            std::fs::write(path(version).join("divvy-node.yaml"), text).expect("written");
        }
        std::os::unix::fs::symlink("..1", path("..data")).expect("a link");
        std::os::unix::fs::symlink("..data/divvy-node.yaml", path("divvy-node.yaml")).expect("a link");
        let mut running = start(&path("divvy-node.yaml"));
        shows(&mut running, "the first configuration", |shown| shown.text.contains("slotsPerCard: 8")).await;
        std::os::unix::fs::symlink("..2", path("..data_tmp")).expect("a link");
        std::fs::rename(path("..data_tmp"), path("..data")).expect("swapped");
        ends(running).await;
    }

    #[tokio::test]
    async fn node_label_selects_an_override() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("divvy-node.yaml");
        let text = "version: v1\noverrides:\n- selector: {matchLabels: {pool: a}}\n  slotsPerCard: 8\n\
                    - selector: {matchLabels: {spare: b}}\n  slotsPerCard: 32\n";
        std::fs::write(&file, text).expect("written");
        let mut running = start(&file);
        let label = |key: &str, value: &str| Desired {
            labels: [(key.to_owned(), value.to_owned())].into(),
            ..Desired::default()
        };
        running.desired.send_replace(label("spare", "b"));
        shows(&mut running, "an override that changes nothing", |shown| {
            shown.text.contains("\n# overrides in effect: spare=b")
        })
        .await;
        running.desired.send_replace(label("pool", "a"));
        ends(running).await;
    }
}

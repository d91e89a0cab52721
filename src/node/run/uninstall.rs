//! `--uninstall`: removes what Divvy left, on this node or on all Nodes. Files of running pods are kept.

mod cluster;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use divvy_node_core::pod::Pod;
use divvy_runtime::Signals;
use divvy_runtime::api_server::ApiServer;

use super::settings;
use crate::apiserver;
use crate::args::Uninstall;
use crate::config::Config;
use crate::container::Containers;
use crate::container::isolation::{self, Accounting};
use crate::kubelet::client::PodListClient;
use crate::kubelet::registration::{NOTE, own_sockets};
use crate::usage::driver_memory;
use divvy_node_core::ledger::{self, Nonce};
use divvy_node_core::ports::ContainerSetup as _;

/// Something could not be removed, as was printed.
#[derive(Debug)]
pub(super) struct Incomplete;

/// Interval at which files of pods that have ended are looked for.
const LOOK: Duration = Duration::from_secs(10);

/// Removes everything that can be removed, and prints a line for each. SIGTERM ends it: there may be more to remove then.
pub(super) async fn uninstall(what: Uninstall, config: &Config, mut say: impl FnMut(String)) -> Result<(), Incomplete> {
    let signals = Signals::new();
    let removal = async {
        match what {
            Uninstall::Node => uninstall_from_node(config, &mut say).await,
            Uninstall::Watch => keep_removing_files(config, &mut say).await,
            Uninstall::Cluster => cluster::uninstall(config, &mut say).await,
        }
    };
    let ended = async {
        match signals {
            Ok(mut signals) => drop(signals.next().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        removed = removal => removed,
        () = ended => if what == Uninstall::Watch { Ok(()) } else { Err(Incomplete) },
    }
}

/// Removes nothing while a daemon runs, which would make it all again.
async fn uninstall_from_node(config: &Config, mut say: impl FnMut(String)) -> Result<(), Incomplete> {
    // To the end.
    let _lock = match lock(config) {
        Ok(lock) => lock,
        Err(problem) => {
            say(problem);
            return Err(Incomplete);
        }
    };
    remove(config, pods(config).await, say).await
}

/// Removes files again and again, and prints what differs from the last time.
async fn keep_removing_files(config: &Config, mut say: impl FnMut(String)) -> ! {
    let mut said = Vec::new();
    loop {
        let pods = pods(config).await;
        let lines = match lock(config) {
            Ok(_lock) => lines("files", remove_files(config, pods)).0,
            Err(problem) => vec![problem],
        };
        say_news(&mut said, lines, &mut say);
        tokio::time::sleep(LOOK).await;
    }
}

/// Prints those of these lines that weren't among the last ones, which they replace.
fn say_news(said: &mut Vec<String>, lines: Vec<String>, say: impl FnMut(String)) {
    lines.iter().filter(|line| !said.contains(*line)).cloned().for_each(say);
    *said = lines;
}

/// Keeps a daemon from starting.
fn lock(config: &Config) -> Result<Option<fs::File>, String> {
    let lock = config.state_dir.exists().then(|| ledger::lock(&config.state_dir)).transpose();
    lock.map_err(|error| format!("nothing is removed: {error}"))
}

/// Pods of this node, by the kubelet.
async fn pods(config: &Config) -> anyhow::Result<Vec<Arc<Pod>>> {
    Ok(PodListClient::new(settings::kubelet(config))?.list().await?.pods)
}

/// Removes everything that is not used by `pods`, the kubelet's.
async fn remove(
    config: &Config,
    pods: anyhow::Result<Vec<Arc<Pod>>>,
    mut say: impl FnMut(String),
) -> Result<(), Incomplete> {
    let files = remove_files(config, pods);
    let parts = [("Node", clean_node(config).await), ("plugin", remove_plugin(config)), ("files", files)];
    let mut result = Ok(());
    for (part, removed) in parts {
        let (lines, all) = lines(part, removed);
        lines.into_iter().for_each(&mut say);
        result = result.and(all);
    }
    result
}

/// What to say of a part, and whether all of it is removed.
fn lines(part: &str, removed: anyhow::Result<Vec<String>>) -> (Vec<String>, Result<(), Incomplete>) {
    match removed {
        Ok(lines) => (lines, Ok(())),
        Err(error) => (vec![format!("left: {part}: {error:#}")], Err(Incomplete)),
    }
}

async fn clean_node(config: &Config) -> anyhow::Result<Vec<String>> {
    let Some(ApiServer { client, .. }) = settings::api_server(config).await? else {
        return Ok(vec!["left: the Node, as there is neither a cluster nor a kubeconfig".to_owned()]);
    };
    let name: &str = &config.node_name;
    let removed = apiserver::remove(client, name, &config.cluster().amount_names()).await?;
    Ok(removed.into_iter().map(|what| format!("removed: {what} of Node {name}")).collect())
}

/// Removes the daemon's files in the kubelet's plugin directory.
fn remove_plugin(config: &Config) -> anyhow::Result<Vec<String>> {
    let mut out = Vec::new();
    let mut sockets = own_sockets(&config.device_plugin_dir());
    sockets.sort_unstable();
    for path in sockets.into_iter().chain([config.device_plugin_dir().join(NOTE)]) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => {
                removed.with_context(|| path.display().to_string())?;
                out.push(format!("removed: {}", path.display()));
            }
        }
    }
    Ok(out)
}

/// Removes the directories of ended containers, and the CDI specification once no pod has any: a container that restarts needs
/// both.
fn remove_files(config: &Config, pods: anyhow::Result<Vec<Arc<Pod>>>) -> anyhow::Result<Vec<String>> {
    let pods = pods.context("listing running pods")?;
    let prepared = Containers::new(config.into(), Box::new(Accounting));
    let running = pods.iter().filter(|pod| !pod.has_ended());
    let containers = running.flat_map(|pod| pod.containers.iter().map(move |container| (pod, &container.name)));
    let used: HashMap<Nonce, String> =
        containers.filter_map(|(pod, name)| Some((prepared.find(&pod.uid, name)?.nonce, pod.to_string()))).collect();
    let ended = prepared.sweep(&used.keys().copied().collect())?;
    prepared.remove_dead().context("removing regions of ended containers")?;
    let mut lines: Vec<String> = ended.iter().map(|nonce| format!("removed: limits and region {nonce}")).collect();
    if used.is_empty() {
        let removed = prepared.remove_specification()?;
        lines.extend(removed.then(|| format!("removed: CDI specification in {}", config.cdi_dir.display())));
        let mut removed = isolation::remove(config).context("removing the library and clock pages")?;
        removed.extend(remove_state(config).context("removing the ledger")?);
        // Where they are mounted, as in a pod, the last two stay.
        let own = [config.run_dir.to_path_buf(), config.state_dir.to_path_buf()];
        removed.extend(prepared.directories().into_iter().chain(own).filter(|path| fs::remove_dir(path).is_ok()));
        lines.extend(removed.into_iter().map(|path| format!("removed: {}", path.display())));
    } else {
        let pods = used.into_values().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ");
        lines.push(format!("left: CDI specification, limits and regions, which these pods use: {pods}"));
    }
    Ok(lines)
}

/// Removes what the daemon keeps for its next start.
fn remove_state(config: &Config) -> io::Result<Vec<PathBuf>> {
    let is_ours =
        |name: &str| ledger::is_journal(name) || [apiserver::desired::FILE, driver_memory::FILE].contains(&name);
    let entries = match fs::read_dir(&*config.state_dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let ours = names.into_iter().filter(|name| name.to_str().is_some_and(is_ours));
    let mut paths: Vec<PathBuf> = ours.map(|name| config.state_dir.join(name)).collect();
    paths.sort_unstable();
    paths.iter().try_for_each(fs::remove_file)?;
    Ok(paths)
}

#[cfg(test)]
mod tests;

//! `--uninstall`: removes what the daemon left on the node. Files of running pods are kept, so it can be repeated later.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;

use anyhow::Context as _;
use divvy_node_core::pod::Pod;
use divvy_runtime::api_server::ApiServer;

use super::settings;
use crate::apiserver;
use crate::config::Config;
use crate::container::Containers;
use crate::container::isolation::{self, Accounting};
use crate::kubelet::client::PodListClient;
use crate::kubelet::registration::{NOTE, own_sockets};
use divvy_node_core::ledger::{Ledger, Nonce};
use divvy_node_core::ports::ContainerSetup as _;

/// Something could not be removed, as was printed.
#[derive(Debug)]
pub(super) struct Incomplete;

/// Removes everything that can be removed, and prints a line for each. Removes nothing while a daemon runs, which would make
/// it all again.
pub(super) async fn uninstall(config: &Config, mut say: impl FnMut(String)) -> Result<(), Incomplete> {
    // Locked to the end. The ledger itself is kept: a daemon that is installed again finds its pods in it.
    let ledger = config.state_dir.exists().then(|| Ledger::open(&config.state_dir)).transpose();
    if let Err(error) = ledger {
        say(format!("nothing is removed: {error}"));
        return Err(Incomplete);
    }
    let pods = async { Ok(PodListClient::new(settings::kubelet(config))?.list().await?.pods) };
    remove(config, pods.await, say).await
}

/// Removes everything that is not used by `pods`, the kubelet's.
async fn remove(
    config: &Config,
    pods: anyhow::Result<Vec<Arc<Pod>>>,
    mut say: impl FnMut(String),
) -> Result<(), Incomplete> {
    let files = pods.context("listing running pods").and_then(|pods| remove_files(config, &pods));
    let parts = [("Node", clean_node(config).await), ("plugin", remove_plugin(config)), ("files", files)];
    let mut result = Ok(());
    for (part, removed) in parts {
        match removed {
            Ok(lines) => lines.into_iter().for_each(&mut say),
            Err(error) => {
                say(format!("left: {part}: {error:#}"));
                result = Err(Incomplete);
            }
        }
    }
    result
}

async fn clean_node(config: &Config) -> anyhow::Result<Vec<String>> {
    let Some(ApiServer { client, .. }) = settings::api_server(config).await? else {
        return Ok(vec!["left: the Node, as there is neither a cluster nor a kubeconfig".to_owned()]);
    };
    let name: &str = &config.node_name;
    let removed = apiserver::remove(client, name, &config.amount_names()).await?;
    Ok(removed.into_iter().map(|what| format!("removed: {what} of Node {name}")).collect())
}

/// Removes the daemon's files in the kubelet's plugin directory.
fn remove_plugin(config: &Config) -> anyhow::Result<Vec<String>> {
    let mut out = Vec::new();
    let mut sockets = own_sockets(&config.device_plugin_dir);
    sockets.sort_unstable();
    for path in sockets.into_iter().chain([config.device_plugin_dir.join(NOTE)]) {
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
fn remove_files(config: &Config, pods: &[Arc<Pod>]) -> anyhow::Result<Vec<String>> {
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
        let removed = isolation::remove(config).context("removing the library and clock pages")?;
        lines.extend(removed.into_iter().map(|directory| format!("removed: {}", directory.display())));
    } else {
        let pods = used.into_values().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ");
        lines.push(format!("left: CDI specification, limits and regions, which these pods use: {pods}"));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests;

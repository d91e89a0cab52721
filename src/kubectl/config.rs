//! Configuration that all parts share: the ConfigMap of daemon and webhook, or a file like it.

use std::path::Path;

use anyhow::anyhow;
use divvy_api::config::{ClusterConfig, KEY};
use divvy_api::installation::CONFIG_MAP;
use divvy_index::demand::SchedulingConfig;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::cluster::{Cluster, Refusal};
use crate::text::first_line;

/// Reads the configuration from `file`.
pub(crate) fn from_file(file: &Path) -> anyhow::Result<SchedulingConfig> {
    let refused = |problem: String| anyhow!("error: {}: {problem}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    parse(&text).and_then(|config| scheduling(&config)).map_err(refused)
}

/// Reads the configuration that the cluster's daemons share: the defaults, with a remark, where it can't be read, and the
/// defaults where there is none.
pub(crate) async fn from_cluster(cluster: &Cluster, namespace: &str, remarks: &mut Vec<String>) -> SchedulingConfig {
    let read = match read(cluster, namespace).await {
        Ok(content) => content,
        Err(refused) => Err(refused.to_string()),
    };
    read.and_then(|config| scheduling(&config)).unwrap_or_else(|why| {
        let map = format!("ConfigMap {namespace}/{CONFIG_MAP}");
        remarks.push(format!("warning: the configuration isn't known, defaults are assumed: {map}: {why}"));
        scheduling(&ClusterConfig::default()).unwrap_or_default()
    })
}

/// What the ConfigMap says, or what is wrong with that; the defaults where there is none.
pub(crate) async fn read(cluster: &Cluster, namespace: &str) -> Result<Result<ClusterConfig, String>, Refusal> {
    let maps = Api::<ConfigMap>::namespaced(cluster.client(), namespace);
    let map = cluster.find(&maps, CONFIG_MAP).await?;
    Ok(map.map_or_else(
        || Ok(ClusterConfig::default()),
        |map| parse(map.data.as_ref().and_then(|data| data.get(KEY)).map_or("", String::as_str)),
    ))
}

fn parse(text: &str) -> Result<ClusterConfig, String> {
    let config: ClusterConfig = serde_saphyr::from_str(text).map_err(|error| first_line(&error))?;
    scheduling(&config).map(|_| config)
}

fn scheduling(config: &ClusterConfig) -> Result<SchedulingConfig, String> {
    SchedulingConfig::try_from(config).map_err(|error| error.to_string())
}

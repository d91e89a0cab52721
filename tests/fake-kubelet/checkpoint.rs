//! `kubelet_internal_checkpoint`: who holds which IDs, across restarts of the kubelet.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use divvy_proto::deviceplugin as dp;
use k8s_openapi::ByteString;
use prost::Message as _;
use serde::{Deserialize, Serialize};

use super::devices::{Devices, Grant, Held, Ids};

/// Name of the file in the device-plugins directory.
pub(crate) const FILE: &str = "kubelet_internal_checkpoint";
/// The key of devices without topology.
const NO_NUMA_NODE: &str = "-1";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
    checksum: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    pod_device_entries: Vec<Entry>,
    registered_devices: BTreeMap<String, Ids>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    #[serde(rename = "DeviceIDs")]
    device_ids: BTreeMap<String, Ids>,
    /// Protobuf, in base64.
    alloc_resp: ByteString,
}

/// Replaces the file in `directory`, by rename.
pub(crate) fn write(directory: &Path, devices: &Devices) -> anyhow::Result<()> {
    let registered = devices.known.iter().map(|(resource, health)| (resource.clone(), health.healthy.clone()));
    let data = Data { pod_device_entries: entries(&devices.held), registered_devices: registered.collect() };
    let checksum = checksum(&data)?;
    let mut file = tempfile::Builder::new().prefix(".").tempfile_in(directory).context("creating a checkpoint")?;
    file.write_all(&serde_json::to_vec(&File { data, checksum })?).context("writing the checkpoint")?;
    file.persist(path(directory)).context("renaming the checkpoint")?;
    Ok(())
}

/// What the file in `directory` holds; nothing where there is none or it is damaged, as the kubelet goes on then.
pub(crate) fn read(directory: &Path) -> Devices {
    let Ok(text) = std::fs::read(path(directory)) else { return Devices::default() };
    decode(&text).unwrap_or_else(|error| {
        tracing::warn!(%error, "continuing without the checkpoint");
        Devices::default()
    })
}

pub(crate) fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

fn decode(text: &[u8]) -> anyhow::Result<Devices> {
    let File { data, checksum: expected } = serde_json::from_slice(text)?;
    anyhow::ensure!(checksum(&data)? == expected, "the checkpoint is corrupted");
    let mut held = Held::new();
    for Entry { pod_uid, container_name, resource_name, device_ids, alloc_resp } in data.pod_device_entries {
        let answer = dp::ContainerAllocateResponse::decode(&*alloc_resp.0)?;
        let grant = Grant { ids: device_ids.into_values().flatten().collect(), answer };
        held.entry(pod_uid).or_default().entry(container_name).or_default().insert(resource_name, grant);
    }
    Ok(Devices::restored(held, data.registered_devices.into_keys()))
}

fn entries(held: &Held) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (pod, containers) in held {
        for (container, grants) in containers {
            entries.extend(grants.iter().map(|(resource, grant)| Entry {
                pod_uid: pod.clone(),
                container_name: container.clone(),
                resource_name: resource.clone(),
                device_ids: BTreeMap::from([(NO_NUMA_NODE.to_owned(), grant.ids.clone())]),
                alloc_resp: ByteString(grant.answer.encode_to_vec()),
            }));
        }
    }
    entries
}

/// FNV-1a over the data's text; the real one hashes a dump of the structure.
fn checksum(data: &Data) -> anyhow::Result<u64> {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    Ok(serde_json::to_vec(data)?.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

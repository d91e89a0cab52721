//! The kubelet's own record of devices, in the file that it keeps for its next start.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use divvy_api::ResourceNames;
use divvy_proto::deviceplugin::ContainerAllocateResponse;
use divvy_testkit::outside::Given;
use k8s_openapi::ByteString;
use prost::Message as _;
use serde::Deserialize;

use crate::containers::ContainerKey;
use crate::daemon::PLUGIN_DIRECTORY;

/// What the kubelet keeps of one container.
#[derive(Clone, Debug)]
pub struct Record {
    /// IDs of its devices.
    pub slots: BTreeSet<String>,
    /// What our answer gave it.
    pub given: Given,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Data,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    pod_device_entries: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    /// By NUMA node.
    #[serde(rename = "DeviceIDs")]
    device_ids: BTreeMap<String, BTreeSet<String>>,
    /// Protobuf, in base64.
    alloc_resp: ByteString,
}

/// Where it is.
pub fn path() -> PathBuf {
    Path::new(PLUGIN_DIRECTORY).join("kubelet_internal_checkpoint")
}

/// What it says of cards; nothing where there is none.
pub fn read() -> anyhow::Result<BTreeMap<ContainerKey, Record>> {
    let names = ResourceNames::default();
    let record = |entry: Entry| {
        let answer = ContainerAllocateResponse::decode(&*entry.alloc_resp.0).context("decoding our own answer")?;
        let slots = entry.device_ids.into_values().flatten().collect();
        Ok(((entry.pod_uid, entry.container_name), Record { slots, given: Given::read(&answer) }))
    };
    entries()?.into_iter().filter(|entry| names.counts_cards(&entry.resource_name)).map(record).collect()
}

/// How many devices of a resource each container has.
pub fn counts(resource: &str) -> anyhow::Result<BTreeMap<ContainerKey, usize>> {
    let count = |entry: Entry| {
        let count = entry.device_ids.into_values().flatten().count();
        ((entry.pod_uid, entry.container_name), count)
    };
    Ok(entries()?.into_iter().filter(|entry| entry.resource_name == resource).map(count).collect())
}

fn entries() -> anyhow::Result<Vec<Entry>> {
    let text = match std::fs::read(path()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.context("reading the kubelet's checkpoint")?,
    };
    let file: File = serde_json::from_slice(&text).context("decoding the kubelet's checkpoint")?;
    Ok(file.data.pod_device_entries.unwrap_or_default())
}

//! Client for PodResources, the kubelet's records of the devices of each container.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use divvy_api::ResourceNames;
use divvy_node_core::foreign;
use divvy_node_core::pod::{DeviceRecord, PodRef};
use divvy_node_core::ports::PodSourceError;
use divvy_proto::podresources as api;
use divvy_proto::podresources::pod_resources_lister_client::PodResourcesListerClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::conflict::Listed;
use super::unix_channel;

/// Client of the PodResources socket. Each request opens a connection of its own, as requests are rare.
#[derive(Clone, Debug)]
pub struct PodResources {
    /// `<kubelet's root>/pod-resources/kubelet.sock`.
    pub socket: PathBuf,
    /// Names of the resources whose devices are requested.
    pub names: ResourceNames,
}

const DEADLINE: Duration = Duration::from_secs(2);
/// Time after which the kubelet's rate limit admits another request.
const PAUSE: Duration = Duration::from_millis(10);
/// Largest response in bytes: with one entry for each device, a node of many slots exceeds tonic's 4 MiB.
const LARGEST_ANSWER: usize = 64 << 20;

// === impl PodResources ===

impl PodResources {
    /// All containers with devices of Divvy's or of other systems. The kubelet releases devices of ended pods when it answers, so this is only called
    /// before registration, never while an Allocate is in flight (kubernetes#137534).
    pub async fn list(&self) -> Result<Vec<DeviceRecord>, PodSourceError> {
        self.list_of(|resource| self.has_cards(resource)).await
    }

    /// All containers with units of memory or compute, where those are devices. To be called when [`Self::list`] may be.
    pub async fn list_units(&self) -> Result<Vec<DeviceRecord>, PodSourceError> {
        let ResourceNames { memory, cores, .. } = &self.names;
        if !self.names.counts_memory_in_devices() {
            return Ok(Vec::new());
        }
        self.list_of(|resource| [memory, cores].iter().any(|name| name.as_str() == resource)).await
    }

    async fn list_of(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<DeviceRecord>, PodSourceError> {
        let answer = self.client().await?.list(api::ListPodResourcesRequest {}).await;
        let answer = answer.map_err(|status| self.refused("List", &status))?;
        Ok(answer.into_inner().pod_resources.iter().flat_map(|pod| assigned(pod, &is_wanted)).collect())
    }

    /// Devices of Divvy's or of other systems that these pods have, by namespace and name; `None` for a pod that the kubelet doesn't have, or that has
    /// ended. It has a pod from just before its admission on. Ordinary init containers are never included. Releases nothing.
    pub async fn get(&self, pods: &[PodRef]) -> Result<Vec<Option<Vec<DeviceRecord>>>, PodSourceError> {
        let mut records = Vec::with_capacity(pods.len());
        if pods.is_empty() {
            return Ok(records);
        }
        let mut client = self.client().await?;
        for pod in pods {
            records.push(self.get_one(&mut client, pod).await?);
        }
        Ok(records)
    }

    async fn get_one(
        &self,
        client: &mut PodResourcesListerClient<Channel>,
        pod: &PodRef,
    ) -> Result<Option<Vec<DeviceRecord>>, PodSourceError> {
        let namespace = &pod.namespace;
        let name = &pod.name;
        let request = api::GetPodResourcesRequest { pod_name: name.clone(), pod_namespace: namespace.clone() };
        let started = Instant::now();
        loop {
            match client.get(request.clone()).await {
                Ok(answer) => {
                    let pod = answer.into_inner().pod_resources.unwrap_or_default();
                    return Ok(Some(assigned(&pod, |resource| self.has_cards(resource))));
                }
                // 100 requests a second of all clients, with a burst of 10: a rejected one is repeated.
                Err(status) if status.code() == Code::ResourceExhausted && started.elapsed() < DEADLINE => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(status) if is_unknown(&status, namespace, name) => return Ok(None),
                Err(status) => return Err(self.refused("Get", &status)),
            }
        }
    }

    /// Every healthy device of every registered plugin. Releases nothing, so it may be called at any time.
    pub async fn allocatable(&self) -> Result<Vec<Listed>, PodSourceError> {
        let answer = self.client().await?.get_allocatable_resources(api::AllocatableResourcesRequest {}).await;
        let answer = answer.map_err(|status| self.refused("GetAllocatableResources", &status))?;
        let listed = |devices: api::ContainerDevices| {
            let resource = devices.resource_name;
            devices.device_ids.into_iter().map(move |device| Listed { resource: resource.clone(), device })
        };
        Ok(answer.into_inner().devices.into_iter().flat_map(listed).collect())
    }

    /// Whether devices of this resource are cards, or parts of them, of whatever system.
    fn has_cards(&self, resource: &str) -> bool {
        self.names.counts_cards(resource) || (!self.names.is_ours(resource) && foreign::is_known(resource))
    }

    async fn client(&self) -> Result<PodResourcesListerClient<Channel>, PodSourceError> {
        let endpoint = Endpoint::from_static("http://localhost").timeout(DEADLINE).connect_timeout(DEADLINE);
        let channel = unix_channel(endpoint, self.socket.clone()).await;
        let channel = channel.map_err(|problem| self.error(&problem))?;
        Ok(PodResourcesListerClient::new(channel).max_decoding_message_size(LARGEST_ANSWER))
    }

    fn refused(&self, call: &'static str, status: &Status) -> PodSourceError {
        self.error(&format!("{call} answered {}: {}{}", status.code(), status.message(), hint(call)))
    }

    fn error(&self, problem: &str) -> PodSourceError {
        PodSourceError::DeviceRecords(format!("pod resources {}: {problem}", self.socket.display()))
    }
}

/// Whether the kubelet doesn't have the pod: it answers with an error without code (`server_v1.go`).
fn is_unknown(status: &Status, namespace: &str, name: &str) -> bool {
    status.code() == Code::NotFound || status.message() == format!("pod {name} in namespace {namespace} not found")
}

fn hint(call: &str) -> &'static str {
    if call == "Get" { " (needs Kubernetes 1.34, or the kubelet's feature gate KubeletPodResourcesGet)" } else { "" }
}

/// Devices of the wanted resources that the containers of a pod have.
fn assigned(pod: &api::PodResources, is_wanted: impl Fn(&str) -> bool) -> Vec<DeviceRecord> {
    let mut records = Vec::new();
    for container in &pod.containers {
        let mut devices: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for entry in container.devices.iter().filter(|entry| is_wanted(&entry.resource_name)) {
            devices.entry(entry.resource_name.clone()).or_default().extend(entry.device_ids.iter().cloned());
        }
        devices.retain(|_, devices| !devices.is_empty());
        records.extend(devices.into_iter().map(|(resource, devices)| DeviceRecord {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            container: container.name.clone(),
            resource,
            devices,
        }));
    }
    records
}

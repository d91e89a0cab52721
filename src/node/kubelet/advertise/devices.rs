//! `advertise: devices`: memory and compute as devices of the device plugin, for clusters where the daemon may not write to
//! its Node.
//!
//! A unit belongs to a GPU, `GPU-<uuid>::c<n>` for compute or `GPU-<uuid>::m<n>` for memory, and the kubelet counts units.
//! Nothing is decided by them: a container's GPUs are those of its slots, in whatever order the kubelet allocates slots and
//! units, so each container that requests units has to request slots as well. As many units are healthy as are held in units
//! and free beside that, so shares held in another form reduce them, as they reduce amounts. Units that the kubelet has
//! given to pods stay healthy.

use std::collections::BTreeSet;

use divvy_api::pod::peak;
use divvy_api::{Card, Cores, Memory, ResourceName, Share};
use divvy_proto::deviceplugin as api;
use divvy_proto::deviceplugin::device_plugin_server::DevicePlugin;
use tonic::{Request, Response, Status};

use super::{Listing, Offer};
use crate::kubelet::device_list::{DeviceList, Devices};
use crate::kubelet::plugin::{Calls, only};
use crate::kubelet::response::status;
use divvy_node_core::allocator::{Refusal, lock};
use divvy_node_core::amounts::free;
use divvy_node_core::inventory::Inventory;
use divvy_node_core::ledger::{Allocations, ContainerEntry, PodEntry};
use divvy_node_core::ports::PodSource;

/// Units of compute and of memory of all GPUs.
pub(super) fn offers(
    inventory: &Inventory,
    allocations: &Allocations,
    given: &BTreeSet<&str>,
    listing: &Listing,
) -> [Offer; 2] {
    let names = &listing.names;
    let unit = names.memory_unit.as_mib().max(1);
    let mut of_cores = Vec::new();
    let mut of_memory = Vec::new();
    for card in inventory.cards() {
        let (memory, cores) = held(allocations, card);
        let free = free(allocations, card);
        let all = card.scales.cores.into();
        let held = cores.units().into();
        of_cores.extend(Units { kind: 'c', all, held, free: free.cores }.devices(card, given));
        let all = card.memory_capacity().as_mib() / unit;
        let held = memory.as_mib().div_ceil(unit);
        of_memory.extend(Units { kind: 'm', all, held, free: free.memory / unit }.devices(card, given));
    }
    let offer = |resource: &ResourceName, devices| Offer { resource: resource.clone(), devices };
    // The longest list last: the kubelet takes a second over some thousand devices (seen on 1.36.3), and registers nobody
    // meanwhile.
    [offer(&names.cores, of_cores), offer(&names.memory, of_memory)]
}

/// Device-plugin service of the units of one resource, for one session with the kubelet.
#[derive(Debug)]
pub(in crate::kubelet) struct UnitPlugin<S> {
    pub(in crate::kubelet) list: DeviceList,
    pub(in crate::kubelet) calls: Calls<S>,
}

/// Units of one GPU and one kind.
struct Units {
    kind: char,
    all: u64,
    held: u64,
    free: u64,
}

/// Memory and compute of a GPU that pods hold in units; containers that requested no units hold none.
fn held(allocations: &Allocations, card: &Card) -> (Memory, Cores) {
    let of_container = |container: &ContainerEntry| (container.request.kind, held_by(container, card));
    let of_pod = |entry: &PodEntry| peak(entry.containers.iter().map(of_container));
    let shares = allocations.pods().map(of_pod);
    shares.fold((Memory::ZERO, Cores::ZERO), |(memory, cores), share| {
        (memory.saturating_add(share.memory), cores.saturating_add(share.cores))
    })
}

/// What a container holds of a GPU in units.
fn held_by(container: &ContainerEntry, card: &Card) -> Share {
    let parts = container.holding.iter().flat_map(|holding| &holding.parts);
    let mut share = parts.filter(|part| part.card == card.id).map(|part| part.share).next().unwrap_or_default();
    if container.request.counted.memory == 0 {
        share.memory = Memory::ZERO;
    }
    if container.request.counted.cores == 0 {
        share.cores = Cores::ZERO;
    }
    share
}

// === impl Units ===

impl Units {
    /// Devices for all units, also unhealthy ones: an ID that vanishes while it is held may crash the kubelet.
    fn devices(self, card: &Card, given: &BTreeSet<&str>) -> Vec<api::Device> {
        let Self { kind, all, held, free } = self;
        let healthy = if card.is_healthy() { held.saturating_add(free) } else { held };
        let ids: Vec<String> = (0..all).map(|number| format!("{}::{kind}{number}", card.id)).collect();
        let given_here = ids.iter().filter(|id| given.contains(id.as_str())).count();
        let mut others = usize::try_from(healthy).unwrap_or(usize::MAX).saturating_sub(given_here);
        let mut devices = Vec::with_capacity(ids.len());
        for id in ids {
            let is_given = given.contains(id.as_str());
            let is_healthy = is_given || others > 0;
            others -= usize::from(is_healthy && !is_given);
            let health = if is_healthy { api::HEALTHY } else { api::UNHEALTHY }.to_owned();
            devices.push(api::Device { id, health, topology: None });
        }
        devices
    }
}

#[tonic::async_trait]
impl<S: PodSource + 'static> DevicePlugin for UnitPlugin<S> {
    async fn get_device_plugin_options(
        &self,
        _request: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(api::DevicePluginOptions {
            pre_start_required: false,
            get_preferred_allocation_available: true,
        }))
    }

    type ListAndWatchStream = Devices;

    async fn list_and_watch(&self, _request: Request<api::Empty>) -> Result<Response<Devices>, Status> {
        Ok(Response::new(self.list.stream()))
    }

    /// Prefers units of the GPUs of the pod under admission, so that a GPU's units are mostly held by pods that share it.
    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        let request = only(request.into_inner().container_requests).map_err(|refusal| status(&refusal))?;
        let size = usize::try_from(request.allocation_size).unwrap_or(0);
        let device_ids = lock(self.calls.daemon.allocator()).prefer_units(
            request.available_device_ids,
            request.must_include_device_ids,
            size,
        );
        let container_responses = vec![api::ContainerPreferredAllocationResponse { device_ids }];
        Ok(Response::new(api::PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        self.calls.answer("AllocateUnits", self.allocate_units(request.into_inner())).await?;
        // Empty: the container gets its GPUs with its slots.
        let container_responses = vec![api::ContainerAllocateResponse::default()];
        Ok(Response::new(api::AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _request: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        Ok(Response::new(api::PreStartContainerResponse {}))
    }
}

// === impl UnitPlugin ===

impl<S: PodSource> UnitPlugin<S> {
    async fn allocate_units(&self, request: api::AllocateRequest) -> Result<(), Refusal> {
        let ids = only(request.container_requests)?.device_ids;
        self.calls.daemon.allocate_units(&self.list.resource, &ids).await
    }
}

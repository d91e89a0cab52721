//! The device-plugin service: decodes what the kubelet asks, fetches what the answer needs, and asks the allocator.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use divvy_api::{ResourceName, SlotId};
use divvy_proto::deviceplugin as api;
use divvy_proto::deviceplugin::device_plugin_server::DevicePlugin;
use divvy_runtime::logging::WarnOnce;
use tokio::sync::{Notify, watch};
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};
use tracing::warn;

use super::advertise::Offer;
use super::cgroups::PodCgroups;
use super::client::PodListClient;
use super::metrics::Metrics;
use super::pod_resources::PodResources;
use crate::allocation::{Allocator, Choice, Refusal};
use crate::bound::BoundPods;
use crate::identity::{Subject, Unresolved};
use crate::observer;
use crate::unlisted::{self, Among};

/// The allocator, shared by everything that asks it. Locked for microseconds, never across an await.
pub type SharedAllocator = Arc<Mutex<Allocator>>;

/// Locks the allocator. A panic elsewhere can't have left it half changed: it is changed by whole steps.
pub fn lock(allocator: &SharedAllocator) -> MutexGuard<'_, Allocator> {
    allocator.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What every session of the plugin serves with.
#[derive(Clone, Debug)]
pub struct PluginParts {
    /// Decides.
    pub allocator: SharedAllocator,
    /// The kubelet's pods.
    pub pods: Arc<PodListClient>,
    /// Asked while the kubelet doesn't list its pods; `None` without an API server.
    pub bound: Option<BoundPods>,
    /// Why the kubelet doesn't list its pods, if that is so.
    pub unlisted: Arc<Mutex<WarnOnce>>,
    /// Made anew at every start of the kubelet, so its age is the kubelet's.
    pub kubelet_socket: PathBuf,
    /// A list of a kubelet older than that is whole if no pod has come onto it for so long.
    pub kubelet_settle_time: Duration,
    /// Tells whether a pod that isn't listed any more may still run.
    pub cgroups: Arc<Mutex<PodCgroups>>,
    /// The kubelet's records of devices.
    pub pod_resources: PodResources,
    /// Our resources, and all slots of each with their health.
    pub offers: watch::Receiver<Arc<Vec<Offer>>>,
    /// Told after every change of the books.
    pub booked: Arc<Notify>,
    /// Counts and times.
    pub metrics: Arc<Metrics>,
}

/// The service of one resource for one session: from our registration to the kubelet's next restart.
#[derive(Debug)]
pub struct Plugin {
    /// Whose devices it hands out.
    pub resource: ResourceName,
    /// What it serves with.
    pub parts: PluginParts,
    /// Cancelled when the session ends. A `ListAndWatch` that the kubelet closes ends the session.
    pub session: CancellationToken,
    /// Cancelled when another plugin has taken our resource: further lists of ours would replace its own.
    pub silence: CancellationToken,
}

/// What `ListAndWatch` streams.
pub(super) type Devices = Pin<Box<dyn Stream<Item = Result<api::ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    async fn get_device_plugin_options(
        &self,
        _request: Request<api::Empty>,
    ) -> Result<Response<api::DevicePluginOptions>, Status> {
        Ok(Response::new(api::DevicePluginOptions {
            pre_start_required: true,
            get_preferred_allocation_available: true,
        }))
    }

    type ListAndWatchStream = Devices;

    async fn list_and_watch(&self, _request: Request<api::Empty>) -> Result<Response<Devices>, Status> {
        Ok(Response::new(lists(&self.parts, &self.resource, &self.session, &self.silence)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<api::PreferredAllocationRequest>,
    ) -> Result<Response<api::PreferredAllocationResponse>, Status> {
        let started = Instant::now();
        let result = self.prefer(request.into_inner()).await;
        self.parts.metrics.observe("GetPreferredAllocation", started, &result);
        let device_ids = result?.iter().map(ToString::to_string).collect();
        let container_responses = vec![api::ContainerPreferredAllocationResponse { device_ids }];
        Ok(Response::new(api::PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<api::AllocateRequest>,
    ) -> Result<Response<api::AllocateResponse>, Status> {
        let started = Instant::now();
        let result = self.answer(request.into_inner()).await;
        self.parts.metrics.observe("Allocate", started, &result);
        self.parts.booked.notify_one();
        Ok(Response::new(api::AllocateResponse { container_responses: vec![result?] }))
    }

    async fn pre_start_container(
        &self,
        request: Request<api::PreStartContainerRequest>,
    ) -> Result<Response<api::PreStartContainerResponse>, Status> {
        let started = Instant::now();
        let result = self.start(&request.into_inner().device_ids).await;
        self.parts.metrics.observe("PreStartContainer", started, &result);
        result?;
        Ok(Response::new(api::PreStartContainerResponse {}))
    }
}

// === impl Plugin ===

impl Plugin {
    fn lock(&self) -> MutexGuard<'_, Allocator> {
        lock(&self.parts.allocator)
    }

    async fn prefer(&self, request: api::PreferredAllocationRequest) -> Result<Vec<SlotId>, Refusal> {
        let request = only(request.container_requests)?;
        let choice = Choice {
            available: slots(&request.available_device_ids)?.into_iter().collect(),
            required: slots(&request.must_include_device_ids)?.into_iter().collect::<BTreeSet<_>>(),
            size: usize::try_from(request.allocation_size).map_err(|_negative| {
                Refusal::Call(format!("allocation size {} is negative", request.allocation_size))
            })?,
        };
        let among = self.among(choice.size).await?;
        self.settle(&among, |allocator| allocator.propose(&self.resource, &among.pods, &choice))
    }

    async fn answer(&self, request: api::AllocateRequest) -> Result<api::ContainerAllocateResponse, Refusal> {
        let slots = slots(&only(request.container_requests)?.device_ids)?;
        if let Some(answer) = self.lock().allocate_proposed(&slots) {
            return answer;
        }
        let among = self.among(slots.len()).await?;
        let answer = self.settle(&among, |allocator| allocator.allocate(&self.resource, &among.pods, &slots));
        match answer {
            Err(Refusal::Identity(Unresolved::Nobody { .. })) => self.answer_again(&among, &slots, answer).await,
            answer => answer,
        }
    }

    /// The pods among which the one is that gets `wanted` devices.
    async fn among(&self, wanted: usize) -> Result<Among, Refusal> {
        match observer::look(&self.parts).await {
            Ok(pods) => Ok(Among { pods, unlisted: None }),
            Err(Refusal::PodList(error)) => unlisted::among(&self.parts, &self.resource, wanted, error).await,
            Err(refusal) => Err(refusal),
        }
    }

    fn settle<T>(
        &self,
        among: &Among,
        answer: impl FnOnce(&mut Allocator) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let answer = answer(&mut self.lock());
        if answer.is_ok() {
            self.parts.metrics.identified(if among.unlisted.is_some() { "api-server" } else { "kubelet" });
        }
        answer.map_err(|refusal| among.explain(refusal))
    }

    /// The limits of whoever starts with these slots. If the books have lost that pod, the kubelet's records have it.
    async fn start(&self, ids: &[String]) -> Result<(), Refusal> {
        let slots = slots(ids)?;
        let started = self.lock().pre_start(&slots);
        if !matches!(started, Err(Refusal::UnknownHolder { .. })) {
            return started;
        }
        observer::restore(&self.parts).await?;
        self.lock().pre_start(&slots)
    }

    /// Nobody lacks devices: perhaps the kubelet lost its checkpoint and asks for a container a second time.
    async fn answer_again(
        &self,
        among: &Among,
        slots: &[SlotId],
        refused: Result<api::ContainerAllocateResponse, Refusal>,
    ) -> Result<api::ContainerAllocateResponse, Refusal> {
        let suspects = self.lock().suspects(&among.pods, slots);
        let names: Vec<_> = suspects.iter().map(|Subject { pod, .. }| (&*pod.namespace, &*pod.name)).collect();
        let known = self.parts.pod_resources.known(&names).await.unwrap_or_else(|error| {
            warn!(%error, "not known whether the kubelet forgot pods");
            Vec::new()
        });
        let mut forgotten = suspects;
        let mut known = known.into_iter();
        let allocator = self.lock();
        forgotten.retain(|suspect| known.next().flatten().is_some_and(|known| allocator.is_forgotten(suspect, &known)));
        drop(allocator);
        if forgotten.is_empty() {
            return refused;
        }
        self.settle(among, |allocator| allocator.allocate_again(&self.resource, &forgotten, slots))
    }
}

/// A resource's list, and every change of it, until the session ends.
pub(super) fn lists(
    parts: &PluginParts,
    resource: &ResourceName,
    session: &CancellationToken,
    silence: &CancellationToken,
) -> Devices {
    // Dropped with the stream, that is when the kubelet goes away: then we have to register again.
    let guard: DropGuard = session.clone().drop_guard();
    let (lists, resource) = (WatchStream::new(parts.offers.clone()), resource.clone());
    let lists = lists.filter_map(move |offers| {
        let _held_as_long_as_the_stream = &guard;
        // A resource that isn't offered any more is about to be registered no more.
        let offer = offers.iter().find(|offer| offer.resource == resource)?;
        Some(Ok(api::ListAndWatchResponse { devices: offer.devices.clone() }))
    });
    // A server that waits for its streams would wait for ever: the kubelet never closes this one by itself.
    let ended = Box::pin(session.clone().cancelled_owned());
    Box::pin(UntilCancelled { lists: Box::pin(lists), ended, silence: silence.clone() })
}

/// The kubelet sends one container a call; more would each need an identity of their own.
pub(super) fn only<T>(mut requests: Vec<T>) -> Result<T, Refusal> {
    match (requests.len(), requests.pop()) {
        (1, Some(request)) => Ok(request),
        (count, _) => Err(Refusal::Call(format!("expected one container request, got {count}"))),
    }
}

fn slots(ids: &[String]) -> Result<Vec<SlotId>, Refusal> {
    ids.iter().map(|id| id.parse().map_err(|_id| Refusal::UnknownSlot { slot: id.clone() })).collect()
}

/// The lists until the session ends.
struct UntilCancelled {
    lists: Devices,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    silence: CancellationToken,
}

impl Stream for UntilCancelled {
    type Item = Result<api::ListAndWatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if self.silence.is_cancelled() { Poll::Pending } else { self.lists.as_mut().poll_next(context) }
    }
}

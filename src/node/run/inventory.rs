//! Passes the inventory on to the allocator, the container setup and the device lists, and registers once it is known.

use std::sync::Arc;
use std::time::Duration;

use divvy_node_core::allocator::{SharedAllocator, lock};
use divvy_node_core::ports::{ContainerSetup as _, PodSource};
use divvy_runtime::logging::WarnOnce;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::reconcile;
use crate::apiserver::desired::Desired;
use crate::config::Config;
use crate::container::Containers;
use crate::kubelet::advertise::{self, Listing, Offer};
use crate::kubelet::registration::Registrar;
use divvy_node_core::inventory::Inventory;
use divvy_node_core::serving::ServingProblem;

/// Delay before another attempt to write the CDI specification: a missing directory or device node may appear.
const AGAIN: Duration = Duration::from_secs(5);

/// Passes on every change of the inventory and of the desired state.
pub(super) async fn follow(
    mut inventory: watch::Receiver<Arc<Inventory>>,
    mut desired: watch::Receiver<Desired>,
    containers: Arc<Containers>,
    config: Config,
    advertiser: Advertiser,
    stop: CancellationToken,
) {
    let mut serving = advertiser.serving.clone();
    let mut known = None;
    let mut warning = WarnOnce::default();
    let mut unknown = WarnOnce::default();
    loop {
        let found = Arc::clone(&inventory.borrow_and_update());
        let effective = desired.borrow_and_update().apply(config.effective(&found, containers.tier()));
        match config.card_overrides.unmatched(&effective) {
            Some(unmatched) => unknown.warn(format!("cardOverrides: this node has no GPU with {unmatched}")),
            None => unknown.clear(),
        }
        let effective = Arc::new(effective);
        lock(&advertiser.allocator).set_inventory(Arc::clone(&effective));
        // Searches for the driver's files, which takes too long with the allocator locked.
        let published = containers.publish_cards(&effective);
        let again = published.is_err();
        match published {
            Ok(()) => warning.clear(),
            Err(error) => warning.warn(error.to_string()),
        }
        let strategies = containers.strategies();
        if known.as_ref() != Some(&strategies) {
            info!(active = ?strategies.active, bypassable = strategies.bypassable, "device list strategies: {}", strategies.reason);
            known = Some(strategies);
        }
        advertiser.update();
        let is_closed = advertiser.is_closed();
        tokio::select! {
            changed = inventory.changed() => if changed.is_err() { return },
            Ok(()) = serving.changed() => {}
            // An error without an API server: the desired state never changes.
            Ok(()) = desired.changed() => {}
            // While nothing is free, pods that end leave devices that nobody holds.
            () = tokio::time::sleep(AGAIN), if again || is_closed => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Updates the device lists after every change of the ledger, where they depend on it.
pub(super) async fn relist(advertiser: Advertiser, changed: Arc<Notify>, stop: CancellationToken) {
    let mut listed = None;
    while !stop.is_cancelled() {
        tokio::select! { () = changed.notified() => {}, () = stop.cancelled() => return }
        let revision = lock(&advertiser.allocator).ledger().revision();
        if listed.replace(revision) != Some(revision) {
            advertiser.update();
        }
    }
}

/// Registers once the GPUs are known and the ledger is reconciled with the kubelet: before that nothing may be allocated.
pub(super) async fn register<S: PodSource + 'static>(
    registrar: Registrar<S>,
    mut inventory: watch::Receiver<Arc<Inventory>>,
    advertiser: Advertiser,
    serving: watch::Sender<Option<ServingProblem>>,
    stop: CancellationToken,
) {
    tokio::select! {
        known = inventory.wait_for(|inventory| inventory.driver.is_some()) => if known.is_err() { return },
        () = stop.cancelled() => return,
    }
    if let Some(problem) = reconcile::recover(&registrar.calls.daemon, &stop).await {
        // Before anything is offered.
        serving.send_replace(Some(problem));
        registrar.calls.doubt.notify_one();
    }
    // What was restored may hold slots of cards that don't answer.
    advertiser.update();
    registrar.run(stop).await;
}

/// Updates the device lists of the sessions with the kubelet.
#[derive(Clone)]
pub(super) struct Advertiser {
    pub(super) allocator: SharedAllocator,
    pub(super) listing: Listing,
    pub(super) offers: watch::Sender<Arc<Vec<Offer>>>,
    /// Why no pod can be served, if none can.
    pub(super) serving: watch::Receiver<Option<ServingProblem>>,
}

impl Advertiser {
    /// Whether no pod can be served.
    fn is_closed(&self) -> bool {
        self.serving.borrow().is_some()
    }

    fn update(&self) {
        let offers = {
            let allocator = lock(&self.allocator);
            let given = allocator.units_given();
            let allocations = allocator.ledger().allocations();
            let mut offers = advertise::offers(allocator.inventory(), allocations, &given, &self.listing);
            if self.is_closed() {
                advertise::keep_held(&mut offers, allocations, &given);
            }
            offers
        };
        self.offers.send_if_modified(|known| (**known != offers).then(|| *known = Arc::new(offers)).is_some());
    }
}

//! Takes the cards from the inventory to those who decide, deliver and advertise, and registers once they are known.

use std::sync::Arc;
use std::time::Duration;

use divvy_api::Tier;
use divvy_node_core::allocator::{SharedAllocator, lock};
use divvy_node_core::ports::PodSource;
use divvy_runtime::logging::WarnOnce;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::apiserver::desired::Desired;
use crate::container::{CdiCard, Containers};
use crate::kubelet::advertise::{self, Listing, Offer};
use crate::kubelet::reconcile;
use crate::kubelet::registration::Registrar;
use divvy_node_core::inventory::{CardInfo, Inventory};

/// How soon cards that can't be delivered are looked at again: a missing directory or device node may come.
const AGAIN: Duration = Duration::from_secs(5);

/// Hands every change of the inventory, and of what the cluster wants of it, to whoever decides and to whoever advertises.
pub(super) async fn follow(
    mut inventory: watch::Receiver<Arc<Inventory>>,
    mut desired: watch::Receiver<Desired>,
    containers: Arc<Containers>,
    advertiser: Advertiser,
    stop: CancellationToken,
) {
    let (mut known, mut warning) = (None, WarnOnce::default());
    loop {
        let seen = desired.borrow_and_update().cordon(&inventory.borrow_and_update());
        let seen = if containers.tier() == Tier::Mig { seen.of_instances() } else { seen };
        lock(&advertiser.allocator).set_inventory(Arc::clone(&seen));
        // Looks for the driver's files: too much to do with the allocator locked.
        let published = containers.publish_cards(&delivered(&seen));
        let again = published.is_err();
        match published {
            Ok(()) => warning.clear(),
            Err(error) => warning.warn(error.to_string()),
        }
        let strategies = containers.strategies();
        if known.as_ref() != Some(&strategies) {
            info!(active = ?strategies.active, bypassable = strategies.bypassable, "cards are delivered: {}", strategies.reason);
            known = Some(strategies);
        }
        advertiser.update();
        tokio::select! {
            changed = inventory.changed() => if changed.is_err() { return },
            // Without an API server nobody wants anything new.
            Ok(()) = desired.changed() => {}
            () = tokio::time::sleep(AGAIN), if again => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Lists anew after every change of the ledger, for lists that depend on them.
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

fn delivered(inventory: &Inventory) -> Vec<CdiCard> {
    let card = |card: &CardInfo| CdiCard {
        id: card.id.clone(),
        minor: card.minor,
        instance: card.mig.as_ref().map(|mig| (mig.gi, mig.ci)),
    };
    inventory.cards.iter().map(card).collect()
}

/// Registers once the cards are known and the ledger is reconciled with the kubelet, not before: nothing is promised on a guess.
pub(super) async fn register<S: PodSource + 'static>(
    registrar: Registrar<S>,
    mut inventory: watch::Receiver<Arc<Inventory>>,
    advertiser: Advertiser,
    stop: CancellationToken,
) {
    tokio::select! {
        known = inventory.wait_for(|inventory| inventory.driver.is_some()) => if known.is_err() { return },
        () = stop.cancelled() => return,
    }
    reconcile::recover(&registrar.calls.daemon, &stop).await;
    // What was restored may hold slots of cards that don't answer.
    advertiser.update();
    registrar.run(stop).await;
}

/// Tells the sessions with the kubelet which slots there are.
#[derive(Clone)]
pub(super) struct Advertiser {
    pub(super) allocator: SharedAllocator,
    pub(super) listing: Listing,
    pub(super) offers: watch::Sender<Arc<Vec<Offer>>>,
}

impl Advertiser {
    fn update(&self) {
        let offers = {
            let allocator = lock(&self.allocator);
            let given = allocator.units_given();
            advertise::offers(allocator.inventory(), allocator.ledger().book(), &given, &self.listing)
        };
        self.offers.send_if_modified(|known| (**known != offers).then(|| *known = Arc::new(offers)).is_some());
    }
}

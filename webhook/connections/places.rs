//! Places for connections: so many in all, so many for each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use tokio_util::sync::CancellationToken;

/// Most connections of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In all.
    pub connections: usize,
    /// From one address.
    pub per_address: usize,
}

/// The places of a listener. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Shared>);

/// A connection's place, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPlace {
    shared: Arc<Shared>,
    id: u64,
    lost: CancellationToken,
}

/// A call on a connection. If it is dropped before it has ended, it has failed.
#[derive(Debug)]
pub(super) struct Call {
    shared: Arc<Shared>,
    id: u64,
    status: Option<StatusCode>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Counts connections and calls, so that the older of two is known.
    clock: u64,
    open: HashMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    address: IpAddr,
    lost: CancellationToken,
    use_: Use,
    /// When it came, or was of use last.
    since: u64,
    calls: usize,
}

/// Use of a connection, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// The client hasn't sent anything.
    Silent,
    /// No call has succeeded.
    Unproven,
    /// Calls have succeeded, and none is under way.
    Idle,
    /// Calls have succeeded, and one is under way.
    Busy,
}

// === impl Places ===

impl Places {
    pub(super) fn new(limits: Limits) -> Self {
        Self(Arc::new(Shared { limits, table: Mutex::default() }))
    }

    /// Takes a place for a connection from this address. If there is none left, the one of least use is lost: among those of the
    /// same address if it has too many, else among all.
    pub(super) fn take(&self, address: IpAddr) -> ConnectionPlace {
        let mut table = self.0.table();
        if table.open.values().filter(|open| open.address == address).count() >= self.0.limits.per_address {
            table.displace(|open| open.address == address);
        } else if table.open.len() >= self.0.limits.connections {
            table.displace(|_| true);
        }
        let id = table.tick();
        let lost = CancellationToken::new();
        let open = Open { address, lost: lost.clone(), use_: Use::Silent, since: id, calls: 0 };
        table.open.insert(id, open);
        ConnectionPlace { shared: Arc::clone(&self.0), id, lost }
    }
}

// === impl ConnectionPlace ===

impl ConnectionPlace {
    /// Ends when the place is given to another connection.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// The client has sent something.
    pub(super) fn received(&self) {
        if let Some(open) = self.shared.table().open.get_mut(&self.id) {
            open.use_ = open.use_.max(Use::Unproven);
        }
    }

    /// Whether a call has succeeded.
    pub(super) fn is_proven(&self) -> bool {
        self.shared.table().open.get(&self.id).is_some_and(|open| open.use_ > Use::Unproven)
    }

    /// A call begins.
    pub(super) fn call(&self) -> Call {
        let mut table = self.shared.table();
        let now = table.tick();
        if let Some(open) = table.open.get_mut(&self.id) {
            open.calls += 1;
            if open.use_ > Use::Unproven {
                (open.use_, open.since) = (Use::Busy, now);
            }
        }
        Call { shared: Arc::clone(&self.shared), id: self.id, status: None }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.shared.table().open.remove(&self.id);
    }
}

// === impl Call ===

impl Call {
    /// The call is answered.
    pub(super) fn ended(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        let now = table.tick();
        let Some(open) = table.open.get_mut(&self.id) else { return };
        open.calls -= 1;
        let has_succeeded = self.status.is_some_and(|status| status.is_success());
        if has_succeeded || open.use_ > Use::Unproven {
            open.use_ = if open.calls == 0 { Use::Idle } else { Use::Busy };
        }
        if has_succeeded {
            open.since = now;
        }
    }
}

// === impl Shared ===

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Table ===

impl Table {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Takes the place of the connection of least use, the oldest of several.
    fn displace(&mut self, among: impl Fn(&Open) -> bool) {
        let candidates = self.open.iter().filter(|(_, open)| among(open));
        let least = candidates.min_by_key(|(_, open)| (open.use_, open.since)).map(|(id, _)| *id);
        if let Some(open) = least.and_then(|id| self.open.remove(&id)) {
            open.lost.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn places() -> Places {
        Places::new(Limits { connections: 4, per_address: 3 })
    }

    fn succeed(place: &ConnectionPlace) {
        place.call().ended(StatusCode::OK);
    }

    fn lost<const N: usize>(places: [&ConnectionPlace; N]) -> [bool; N] {
        places.map(|place| place.lost.is_cancelled())
    }

    #[test]
    fn unproven_connections_are_displaced_first_the_oldest_of_them() {
        let places = places();
        let [proven, failed, fresh] = [HERE, HERE, THERE].map(|address| places.take(address));
        succeed(&proven);
        [&failed, &fresh].into_iter().for_each(ConnectionPlace::received);
        failed.call().ended(StatusCode::BAD_REQUEST);
        drop(failed.call());
        let last = places.take(THERE);
        last.received();
        assert_eq!(lost([&proven, &failed, &fresh, &last]), [false; 4]);
        let another = places.take(THERE);
        another.received();
        assert_eq!(lost([&proven, &failed, &fresh, &last]), [false, true, false, false]);
        let _and_another = places.take(HERE);
        assert_eq!(lost([&proven, &failed, &fresh, &last]), [false, true, true, false]);
    }

    #[test]
    fn silent_connections_are_displaced_before_unproven_ones() {
        let places = places();
        let [older, newer, _third, _fourth] = &[HERE, THERE, THERE, HERE].map(|address| places.take(address));
        older.received();
        let _next = places.take(THERE);
        assert_eq!(lost([older, newer]), [false, true]);
    }

    #[test]
    fn idle_connections_are_displaced_before_busy_ones() {
        let places = places();
        let all = [HERE, HERE, THERE, THERE].map(|address| places.take(address));
        let [first, busy, second, third] = &all;
        [first, busy, second, third, first].into_iter().for_each(succeed);
        let _call = busy.call();
        let mut since: Vec<ConnectionPlace> = Vec::new();
        for expected in [[false, false, true, false], [false, false, true, true], [true, false, true, true]] {
            since.push(places.take(if since.len() == 1 { HERE } else { THERE }));
            succeed(since.last().unwrap());
            assert_eq!(lost([first, busy, second, third]), expected, "{}", since.len());
        }
    }

    #[test]
    fn address_with_too_many_connections_loses_its_own() {
        let places = places();
        let [own, older, newer] = [HERE; 3].map(|address| places.take(address));
        succeed(&own);
        let elsewhere = places.take(THERE);
        let _one_too_many = places.take(HERE);
        assert_eq!(lost([&own, &older, &newer, &elsewhere]), [false, true, false, false]);
    }

    #[test]
    fn place_is_free_after_its_connection() {
        let places = places();
        for _ in 0..20 {
            drop(places.take(HERE));
        }
        let all = [HERE, HERE, HERE].map(|address| places.take(address));
        assert_eq!(lost(all.each_ref()), [false; 3]);
    }
}

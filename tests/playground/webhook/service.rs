//! What kube-proxy does for a Service: one address, and behind it the endpoints that are ready.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use rand::seq::IteratorRandom as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The address, until this is dropped.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) address: SocketAddr,
    _end: DropGuard,
}

/// The endpoints of a Service with a selector.
#[derive(Clone, Debug, Default)]
pub(super) struct Endpoints(Arc<watch::Sender<Vec<SocketAddr>>>);

// === impl Service ===

impl Service {
    /// Passes each connection on to one of the endpoints that there are at that time.
    pub(super) async fn start(endpoints: impl Fn() -> Vec<SocketAddr> + Send + Sync + 'static) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listening as the webhook's Service")?;
        let address = listener.local_addr()?;
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(serve(listener, endpoints)));
        Ok(Self { address, _end: end.drop_guard() })
    }
}

// === impl Endpoints ===

impl Endpoints {
    pub(super) fn now(&self) -> Vec<SocketAddr> {
        self.0.borrow().clone()
    }

    /// New connections may go there from now on.
    pub(super) fn add(&self, replica: SocketAddr) {
        self.0.send_modify(|ready| ready.push(replica));
    }

    /// None goes there any more; those that are there stay.
    pub(super) fn remove(&self, replica: SocketAddr) {
        self.0.send_modify(|ready| ready.retain(|other| *other != replica));
    }
}

/// Passes each connection on to one of the endpoints.
async fn serve(listener: TcpListener, endpoints: impl Fn() -> Vec<SocketAddr>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let chosen = endpoints().into_iter().choose(&mut rand::rng());
        tokio::spawn(async move {
            // A client that is cut off, or that finds nobody, hears of it by the end of its connection.
            if let Some(replica) = chosen
                && let Ok(mut replica) = TcpStream::connect(replica).await
            {
                drop(tokio::io::copy_bidirectional(&mut client, &mut replica).await);
            }
        });
    }
}

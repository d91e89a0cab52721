//! What kube-proxy does for a Service: one address, and behind it the replicas that are ready.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use rand::seq::IteratorRandom as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The address, until this is dropped.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) address: SocketAddr,
    ready: watch::Sender<Vec<SocketAddr>>,
    _end: DropGuard,
}

// === impl Service ===

impl Service {
    /// Nobody is behind it yet.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listening as the webhook's Service")?;
        let address = listener.local_addr()?;
        let (ready, endpoints) = watch::channel(Vec::new());
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(serve(listener, endpoints)));
        Ok(Self { address, ready, _end: end.drop_guard() })
    }

    /// New connections may go there from now on.
    pub(super) fn add(&self, replica: SocketAddr) {
        self.ready.send_modify(|ready| ready.push(replica));
    }

    /// None goes there any more; those that are there stay.
    pub(super) fn remove(&self, replica: SocketAddr) {
        self.ready.send_modify(|ready| ready.retain(|other| *other != replica));
    }
}

/// Passes each connection on to one of the endpoints.
async fn serve(listener: TcpListener, endpoints: watch::Receiver<Vec<SocketAddr>>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let chosen = endpoints.borrow().iter().copied().choose(&mut rand::rng());
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

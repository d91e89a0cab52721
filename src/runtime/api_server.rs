//! The API server: its client, watches with back-off, and its errors in words.
//!
//! Programs outlive it: nothing here ends because it is unreachable, and a lasting problem is logged once.

mod backoff;
pub mod errors;
pub mod pages;
mod watch;

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub use backoff::backoff;
pub use watch::watch_object;

/// Longest wait for one answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// The API server: of the kubeconfig, or of the cluster that runs this pod; `None` outside of any.
pub async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<Option<Client>> {
    let config = if let Some(path) = kubeconfig {
        let file = Kubeconfig::read_from(path).with_context(|| format!("kubeconfig {}", path.display()))?;
        Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
    } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        Config::incluster()?
    } else {
        return Ok(None);
    };
    Ok(Some(Client::try_from(config)?))
}

/// An answer, if it comes in time.
pub async fn within_deadline<T>(answer: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let late = |_elapsed| kube::Error::Service(format!("no answer within {}s", DEADLINE.as_secs()).into());
    tokio::time::timeout(DEADLINE, answer).await.map_err(late)?
}

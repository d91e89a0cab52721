//! The kubelet process: its tasks and connections, and their sudden end.

use std::sync::Arc;

use hyper::server::conn::http2;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

use super::core::Core;

/// A running kubelet process.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) core: Arc<Core>,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

// === impl Process ===

impl Process {
    /// A process without tasks.
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core), cancel: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    /// Ends every task and connection at once, as `kill -9` does: files stay as they are.
    pub(crate) async fn kill(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.core.update(|state| {
            state.endpoints.clear();
            state.clients.clear();
        });
    }

    /// Runs a task until it ends or the process does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Serves gRPC at a socket.
    pub(crate) fn serve_grpc(&self, listener: UnixListener, routes: Routes) {
        let process = self.clone();
        self.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(routes.clone());
                let connection = http2::Builder::new(process.clone()).serve_connection(TokioIo::new(stream), service);
                process.spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "a connection broke");
                    }
                });
            }
        });
    }
}

impl<F> hyper::rt::Executor<F> for Process
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

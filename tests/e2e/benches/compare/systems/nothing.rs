//! An extender that does nothing: it answers the names that it is asked about, with their length, over kept connections.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The extender, on a thread of its own.
pub(super) struct Server {
    address: SocketAddr,
    _stop: DropGuard,
    _thread: JoinHandle<()>,
}

/// What is read and written of the scheduler's arguments.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Names {
    node_names: Vec<String>,
}

// === impl Server ===

impl Server {
    /// Listens on a free port.
    pub(super) fn start() -> anyhow::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on loopback")?;
        listener.set_nonblocking(true)?;
        let (address, stop) = (listener.local_addr()?, CancellationToken::new());
        let stopped = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener) => {},
                    () = stopped.cancelled() => {},
                }
            });
        });
        Ok(Self { address, _stop: stop.drop_guard(), _thread: thread })
    }

    /// As a scheduler is configured with it.
    pub(super) fn extender(&self) -> Value {
        let managed = ["nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"];
        let managed = managed.map(|name| json!({"name": name, "ignoredByScheduler": false}));
        json!({
            "urlPrefix": format!("http://{}", self.address), "filterVerb": "filter", "nodeCacheCapable": true,
            "managedResources": managed,
        })
    }
}

async fn serve(listener: std::net::TcpListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let _unset = stream.set_nodelay(true);
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo));
        tokio::spawn(connection);
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = match request.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(_closed) => Bytes::new(),
    };
    let answer = serde_json::from_slice::<Names>(&body).and_then(|names| serde_json::to_vec(&names));
    let answer = answer.unwrap_or_else(|error| json!({"Error": error.to_string()}).to_string().into());
    let response = Response::builder().header(CONTENT_TYPE, "application/json").header(CONTENT_LENGTH, answer.len());
    Ok(response.body(Full::from(answer)).unwrap_or_default())
}

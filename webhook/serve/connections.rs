//! Connections, and how long a client may take. (`axum::serve` waits for ever for one that says nothing.)
//!
//! HTTP/2 is for kube-scheduler: over HTTP/1.1 its client keeps two connections, and makes a new one for every further
//! binding that is under way.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Longest time from an answer to the head of the next call, and between two signs of life on HTTP/2. Clients made with
/// client-go close connections that are idle for 90 s, so that none of their calls meets one that we close.
const HEAD: Duration = Duration::from_secs(120);
/// Longest time from a call's head to its answer, the body included. The API server waits for webhooks at most as long
/// (`timeoutSeconds` of a webhook).
const CALL: Duration = Duration::from_secs(30);

/// A call's connection, for handlers: an [`Extension`].
#[derive(Clone, Debug)]
pub struct Connection(CancellationToken);

/// The connections of a server. Clones share them.
#[derive(Clone, Debug)]
pub struct Connections {
    stop: CancellationToken,
    /// Cancelled when those that are open now are to close.
    open: Arc<Mutex<CancellationToken>>,
}

/// Serves until `connections` are stopped, then ends when the calls under way are answered. At most so many connections are
/// open at a time; others wait in the kernel until one ends. Handlers learn who calls by `ConnectInfo<L::Addr>`.
pub async fn serve<L: Listener>(mut listener: L, most: usize, router: Router, connections: Connections)
where
    L::Addr: Clone + Sync + 'static,
{
    let router = router.layer(from_fn(in_time));
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    let (running, places) = (TaskTracker::new(), Arc::new(Semaphore::new(most)));
    let mut next = async || {
        let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes it");
        (listener.accept().await, place)
    };
    while let Some(((stream, caller), place)) = connections.stop.run_until_cancelled(next()).await {
        let end = connections.open();
        let connection = Connection(end.clone());
        let router = router.clone().layer(Extension(ConnectInfo(caller))).layer(Extension(connection));
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(HEAD));
        let stream = TokioIo::new(Box::pin(stream));
        let connection = http.serve_connection(stream, TowerToHyperService::new(router)).into_owned();
        running.spawn(async move {
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = &mut connection => ended,
                () = end.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection broke");
            }
            drop(place);
        });
    }
    drop(listener);
    running.close();
    running.wait().await;
}

async fn in_time(request: Request, next: Next) -> Response {
    let late = |_elapsed| (StatusCode::REQUEST_TIMEOUT, format!("no answer within {}s\n", CALL.as_secs()));
    tokio::time::timeout(CALL, next.run(request)).await.map_err(late).into_response()
}

// === impl Connection ===

impl Connection {
    /// Closes it once the calls under way are answered, so that the client opens another one.
    pub fn close(&self) {
        self.0.cancel();
    }
}

// === impl Connections ===

impl Connections {
    /// Connections that are closed at `stop`, with their server.
    pub fn until(stop: CancellationToken) -> Self {
        Self { open: Arc::new(Mutex::new(stop.child_token())), stop }
    }

    /// Closes those that are open, each once the calls under way are answered.
    pub fn close(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *open, self.stop.child_token()).cancel();
    }

    /// The end of a connection that begins now.
    fn open(&self) -> CancellationToken {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).child_token()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::body::Bytes;
    use axum::routing::post;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::sync::DropGuard;

    use super::*;

    const CALL: &[u8] = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";

    /// A server that answers bodies with their length, to so many at a time.
    async fn start(most: usize) -> (SocketAddr, DropGuard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = Router::new().route("/", post(async |body: Bytes| body.len().to_string()));
        tokio::spawn(serve(listener, most, router, Connections::until(stop.clone())));
        (address, stop.drop_guard())
    }

    async fn connect() -> (TcpStream, DropGuard) {
        let (address, stop) = start(1).await;
        (TcpStream::connect(address).await.unwrap(), stop)
    }

    /// Reads one answer.
    async fn answer(client: &mut TcpStream) {
        let mut start = [0; 15];
        client.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 200 OK");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n3") {
            head.push(client.read_u8().await.unwrap());
        }
    }

    /// All that comes until the server closes the connection.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    // Time that is paused runs on whenever nobody has anything to do.
    #[tokio::test(start_paused = true)]
    async fn stalled_client_is_disconnected() {
        let (mut silent, _stop) = connect().await;
        silent.write_all(b"POST / HT").await.unwrap();
        assert_eq!(rest(silent).await, "");

        let (mut slow, _stop) = connect().await;
        slow.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na").await.unwrap();
        let answer = rest(slow).await;
        assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    }

    #[tokio::test]
    async fn connection_is_kept_alive_until_closed() {
        let (mut client, stop) = connect().await;
        for _ in 0..2 {
            client.write_all(CALL).await.unwrap();
            answer(&mut client).await;
        }
        drop(stop);
        assert_eq!(rest(client).await, "");
    }

    #[tokio::test]
    async fn connection_beyond_the_limit_waits() {
        let (address, _stop) = start(2).await;
        let mut clients = Vec::new();
        for _ in 0..2 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(CALL).await.unwrap();
            answer(&mut client).await;
            clients.push(client);
        }
        let mut last = TcpStream::connect(address).await.unwrap();
        last.write_all(CALL).await.unwrap();
        // A call of those that are served shows that the server has had its turn.
        for client in &mut clients {
            client.write_all(CALL).await.unwrap();
            answer(client).await;
        }
        assert!(last.try_read(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
        clients.pop();
        answer(&mut last).await;
    }
}

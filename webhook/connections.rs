//! Connections of a listener, and how long a client may take. (`axum::serve` waits for ever for one that says nothing.)
//!
//! Anybody on the pod network may connect, so places are limited, in all and for each address, and a new connection is never
//! turned away for an old one that does nothing: when no place is left, the connection goes that has been of the least use. An
//! honest client speaks at once, which counts as use, and its call takes milliseconds: it loses its place only to hundreds of others
//! that came after it and speak too.

mod places;

use std::any::Any;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use futures::FutureExt as _;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

pub use self::places::Limits;
use self::places::{ConnectionPlace, Places};

/// Longest time for which nothing is received: from an answer to the head of the next call, and between two signs of life on
/// HTTP/2. Clients made with client-go close connections that are idle for 90 s, so that none of their calls meets one that we
/// close.
pub const SILENCE: Duration = Duration::from_secs(120);
/// Time between questions for a sign of life over HTTP/2. The answer to a call may take hours, in which the client has nothing to
/// say.
const PING: Duration = Duration::from_secs(30);
/// Longest time from a call's head to its answer, the body included. The API server waits for webhooks at most as long
/// (`timeoutSeconds` of a webhook).
const CALL: Duration = Duration::from_secs(30);
/// Longest time from a connection to its first call that succeeds: a client connects because it has something to ask.
const FIRST_CALL: Duration = Duration::from_secs(10);

/// A call's connection, for handlers: an extension of the request.
#[derive(Clone, Debug)]
pub struct Connection(CancellationToken);

/// The connections of a server. Clones share them.
#[derive(Clone, Debug)]
pub struct Connections {
    retire: CancellationToken,
    stop: CancellationToken,
    /// Cancelled when those that are open now are to close.
    open: Arc<Mutex<CancellationToken>>,
}

/// How a connection ends.
struct Ends {
    /// Each answer from here on is the last of its connection.
    retire: CancellationToken,
    /// The connection closes once the calls under way are answered.
    end: CancellationToken,
}

/// Why a connection is over before its client or the server wanted it.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("TLS: {0}")]
    Tls(std::io::Error),
    #[error("no call has succeeded within {FIRST_CALL:?}")]
    Silent,
    #[error("its place was needed for another")]
    Displaced,
    #[error("HTTP: {0}")]
    Http(Box<dyn std::error::Error + Send + Sync>),
}

/// What is served on a listener.
#[derive(Clone, Debug)]
pub struct Served {
    /// The routes.
    pub router: Router,
    /// Calls that were answered with 500 because their handler panicked.
    pub panics: Counter,
}

/// Serves until `connections` are stopped, then ends when the calls under way are answered. Without `tls` it speaks plain HTTP.
/// Handlers learn who calls by `ConnectInfo<SocketAddr>`.
pub async fn serve(
    mut listener: TcpListener,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    served: Served,
    connections: Connections,
) {
    let running = TaskTracker::new();
    let places = Places::new(limits);
    while let Some((stream, address)) = connections.stop.run_until_cancelled(Listener::accept(&mut listener)).await {
        let place = places.take(address.ip());
        let tls = tls.clone();
        let served = served.clone();
        let end = connections.open();
        running.spawn(async move {
            let ended = tokio::select! {
                biased;
                () = place.lost() => Err(Broken::Displaced),
                () = silence(&place) => Err(Broken::Silent),
                ended = accept(stream, tls, address, served, &place, end) => ended,
            };
            if let Err(error) = ended {
                tracing::debug!(%address, %error, "a connection broke");
            }
        });
    }
    drop(listener);
    running.close();
    running.wait().await;
}

/// Ends when a connection has been open for long without a call that succeeded.
async fn silence(place: &ConnectionPlace) {
    tokio::time::sleep(FIRST_CALL).await;
    if place.is_proven() {
        std::future::pending::<()>().await;
    }
}

async fn accept(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    address: SocketAddr,
    served: Served,
    place: &ConnectionPlace,
    ends: Ends,
) -> Result<(), Broken> {
    stream.set_nodelay(true).map_err(|error| Broken::Http(error.into()))?;
    stream.readable().await.map_err(|error| Broken::Http(error.into()))?;
    place.received();
    match tls {
        None => talk(stream, address, served, place, ends).await,
        Some(tls) => talk(tls.accept(stream).await.map_err(Broken::Tls)?, address, served, place, ends).await,
    }
}

/// HTTP on a connection until it ends, or until the calls under way are answered after `end`.
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    address: SocketAddr,
    served: Served,
    place: &ConnectionPlace,
    Ends { retire, end }: Ends,
) -> Result<(), Broken> {
    let mut http = Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new()).header_read_timeout(SILENCE);
    http.http2().timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(SILENCE);
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(SILENCE));
    let stream = TokioIo::new(Box::pin(stream));
    let connection = Connection(end.clone());
    let answer = service_fn(|request: Request<Incoming>| {
        let served = served.clone();
        let call = place.call();
        let retire = retire.clone();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(address));
        request.extensions_mut().insert(connection.clone());
        async move {
            let late = |_elapsed| (StatusCode::REQUEST_TIMEOUT, format!("no answer within {}s\n", CALL.as_secs()));
            let is_http1 = request.version() == Version::HTTP_11;
            let answer = timeout(CALL, served.answer(request)).await.map_err(late);
            let mut response = answer.unwrap_or_else(IntoResponse::into_response);
            if is_http1 && retire.is_cancelled() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            call.ended(response.status());
            Ok::<_, Infallible>(response)
        }
    });
    let mut talk = std::pin::pin!(http.serve_connection(stream, answer));
    let ended = tokio::select! {
        ended = &mut talk => ended,
        () = end.cancelled() => {
            talk.as_mut().graceful_shutdown();
            // A client that never acknowledges it could go on calling.
            timeout(SILENCE, talk).await.unwrap_or(Ok(()))
        }
    };
    ended.map_err(Broken::Http)
}

// === impl Served ===

impl Served {
    /// Answers a call, with 500 if its handler panics: that is the call's failure, and not that of others on its connection.
    async fn answer(mut self, request: Request<Body>) -> Response {
        let path = request.uri().path().to_owned();
        // What a panic leaves half done is behind locks that outlive it.
        match AssertUnwindSafe(async { self.router.call(request).await }).catch_unwind().await {
            Ok(Ok(response)) => response,
            Err(panic) => {
                self.panics.inc();
                let text = panic_text(&*panic);
                tracing::error!(
                    path,
                    "the handler of a call panicked, which is a bug: it is answered with 500: {text}"
                );
                (StatusCode::INTERNAL_SERVER_ERROR, format!("the handler of {path} panicked: see the log\n"))
                    .into_response()
            }
        }
    }
}

/// What `panic!` was called with.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

// === impl Connection ===

impl Connection {
    /// Closes it once the calls under way are answered, so that the client opens another one.
    pub fn close(&self) {
        self.0.cancel();
    }

    /// Whether it is to close.
    pub fn is_closing(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until it is to close: an answer without an end has to end then.
    pub async fn closing(&self) {
        self.0.cancelled().await;
    }
}

// === impl Connections ===

impl Connections {
    /// Connections that are closed at `stop`, with their server.
    ///
    /// From `retire` on each is closed by the next answer on it, as the answer says. A client of HTTP/1.1 may otherwise send a
    /// call on an idle connection at the moment when it is closed: Go's doesn't send a POST again, and the API server refuses
    /// the pod.
    pub fn until(retire: CancellationToken, stop: CancellationToken) -> Self {
        Self { open: Arc::new(Mutex::new(stop.child_token())), retire, stop }
    }

    /// Closes those that are open, each once the calls under way are answered.
    pub fn close(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *open, self.stop.child_token()).cancel();
    }

    /// The end of a connection that begins now.
    fn open(&self) -> Ends {
        let end = self.open.lock().unwrap_or_else(PoisonError::into_inner).child_token();
        Ends { retire: self.retire.clone(), end }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::body::Bytes;
    use axum::routing::post;
    use http_body_util::Full;
    use hyper::client::conn::http2;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Semaphore;
    use tokio_util::sync::DropGuard;

    use super::*;

    const CALL: &[u8] = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";

    /// A server that answers bodies with their length, to so many at a time.
    async fn start(most: usize) -> (SocketAddr, DropGuard) {
        start_to_retire(most, CancellationToken::new()).await
    }

    async fn start_to_retire(most: usize, retire: CancellationToken) -> (SocketAddr, DropGuard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = Router::new().route("/", post(async |body: Bytes| body.len().to_string()));
        let limits = Limits { connections: most, per_address: most };
        let served = Served { router, panics: Counter::default() };
        tokio::spawn(serve(listener, None, limits, served, Connections::until(retire, stop.clone())));
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
        for start in ["", "POST / HT", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na"] {
            let (mut client, _stop) = connect().await;
            let begun = tokio::time::Instant::now();
            client.write_all(start.as_bytes()).await.unwrap();
            assert_eq!(rest(client).await, "", "{start:?}");
            assert_eq!(begun.elapsed().as_secs(), FIRST_CALL.as_secs(), "{start:?}");
        }
        let (mut slow, _stop) = connect().await;
        slow.write_all(CALL).await.unwrap();
        answer(&mut slow).await;
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

    /// A server one of whose handlers panics, and another answers once it is released.
    async fn start_panicking(release: Arc<Semaphore>) -> (SocketAddr, Counter, DropGuard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop, panics) = (listener.local_addr().unwrap(), CancellationToken::new(), Counter::default());
        let slow = async move || drop(release.acquire().await.unwrap());
        let panicking = async |body: Bytes| assert_eq!(body.len(), 0, "as the test wants");
        let router = Router::new().route("/", post(async |body: Bytes| body.len().to_string()));
        let router = router.route("/slow", post(slow)).route("/panics", post(panicking));
        let (limits, served) = (Limits { connections: 1, per_address: 1 }, Served { router, panics: panics.clone() });
        let connections = Connections::until(CancellationToken::new(), stop.clone());
        tokio::spawn(serve(listener, None, limits, served, connections));
        (address, panics, stop.drop_guard())
    }

    #[tokio::test]
    async fn panic_of_a_handler_ends_no_http1_connection() {
        let (address, panics, _stop) = start_panicking(Arc::new(Semaphore::new(0))).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        for panicked in 1..=3 {
            client.write_all(b"POST /panics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"the handler of /panics panicked: see the log\n") {
                answer.push(client.read_u8().await.unwrap());
            }
            assert!(answer.starts_with(b"HTTP/1.1 500 Internal Server Error\r\n"));
            assert_eq!(panics.get(), panicked);
        }
        client.write_all(CALL).await.unwrap();
        answer(&mut client).await;
    }

    #[tokio::test]
    async fn panic_of_a_handler_ends_no_other_http2_call() {
        let release = Arc::new(Semaphore::new(0));
        let (address, panics, _stop) = start_panicking(Arc::clone(&release)).await;
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        let call = async |path: &str| {
            let request = Request::post(format!("http://x{path}")).body(Full::new(Bytes::from_static(b"abc"))).unwrap();
            client.clone().send_request(request).await.map(|answer| answer.status().as_u16())
        };
        let calls = async {
            let panicked = call("/panics").await;
            release.add_permits(1);
            (panicked.unwrap(), call("/").await.unwrap())
        };
        let (slow, others) = tokio::join!(call("/slow"), calls);
        assert_eq!((slow.unwrap(), others), (200, (500, 200)));
        assert_eq!(panics.get(), 1);
    }

    #[tokio::test]
    async fn answer_of_a_retiring_server_closes_its_connection() {
        let retire = CancellationToken::new();
        let (address, _stop) = start_to_retire(2, retire.clone()).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(CALL).await.unwrap();
        answer(&mut client).await;
        retire.cancel();
        client.write_all(CALL).await.unwrap();
        let last = rest(client).await;
        assert!(last.contains("\r\nconnection: close\r\n") && last.ends_with("\r\n\r\n3"), "{last}");
        let mut new = TcpStream::connect(address).await.unwrap();
        new.write_all(CALL).await.unwrap();
        assert!(rest(new).await.ends_with("\r\n\r\n3"), "some come until its address is gone everywhere");
    }

    #[tokio::test]
    async fn connection_beyond_the_limit_displaces_a_silent_one() {
        let (address, _stop) = start(2).await;
        let mut proven = TcpStream::connect(address).await.unwrap();
        proven.write_all(CALL).await.unwrap();
        answer(&mut proven).await;
        let silent = TcpStream::connect(address).await.unwrap();
        let mut last = TcpStream::connect(address).await.unwrap();
        assert_eq!(rest(silent).await, "");
        for client in [&mut last, &mut proven] {
            client.write_all(CALL).await.unwrap();
            answer(client).await;
        }
    }
}

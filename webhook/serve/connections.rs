//! Connections, and how long a client may take. (`axum::serve` waits for ever for one that says nothing.)

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Longest time from an answer to the head of the next call. Clients made with client-go close connections that are idle
/// for 90 s, so that none of their calls meets one that we close.
const HEAD: Duration = Duration::from_secs(120);
/// Longest time from a call's head to its answer, the body included. The API server waits for webhooks at most as long
/// (`timeoutSeconds` of a webhook).
const CALL: Duration = Duration::from_secs(30);

/// Serves until `stop`, then ends when the calls under way are answered. At most so many connections are open at a time;
/// others wait in the kernel until one ends. Handlers learn who calls by `ConnectInfo<L::Addr>`.
pub async fn serve<L: Listener>(mut listener: L, most: usize, router: Router, stop: CancellationToken)
where
    L::Addr: Clone + Sync + 'static,
{
    let router = router.layer(from_fn(in_time));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let connections = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(most));
    let mut next = async || {
        let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes it");
        (listener.accept().await, place)
    };
    while let Some(((stream, caller), place)) = stop.run_until_cancelled(next()).await {
        let service = TowerToHyperService::new(router.clone().layer(Extension(ConnectInfo(caller))));
        let connection = connections.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
            drop(place);
        });
    }
    drop(listener);
    connections.shutdown().await;
}

async fn in_time(request: Request, next: Next) -> Response {
    let late = |_elapsed| (StatusCode::REQUEST_TIMEOUT, format!("no answer within {}s\n", CALL.as_secs()));
    tokio::time::timeout(CALL, next.run(request)).await.map_err(late).into_response()
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
        tokio::spawn(serve(listener, most, router, stop.clone()));
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
    async fn a_client_that_stops_in_the_middle_is_left() {
        let (mut silent, _stop) = connect().await;
        silent.write_all(b"POST / HT").await.unwrap();
        assert_eq!(rest(silent).await, "");

        let (mut slow, _stop) = connect().await;
        slow.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\na").await.unwrap();
        let answer = rest(slow).await;
        assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    }

    #[tokio::test]
    async fn a_connection_is_kept_between_calls_and_closed_at_the_end() {
        let (mut client, stop) = connect().await;
        for _ in 0..2 {
            client.write_all(CALL).await.unwrap();
            answer(&mut client).await;
        }
        drop(stop);
        assert_eq!(rest(client).await, "");
    }

    #[tokio::test]
    async fn of_more_connections_than_may_be_open_the_last_waits() {
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

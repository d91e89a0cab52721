//! Connections with numbers of our own: an address comes again, a number doesn't.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use divvy_node_core::pod::ConnectionId;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::util::{MapResponse, ServiceExt as _};

/// Connects by TCP, and numbers the connections.
pub(super) type Connector = MapResponse<HttpConnector, fn(TokioIo<TcpStream>) -> Numbered>;

/// A connection that tells its number to each response that comes over it.
#[derive(Debug)]
pub(super) struct Numbered {
    stream: TokioIo<TcpStream>,
    id: ConnectionId,
}

/// Numbers the connections of `tcp`; no two connections of this process have the same.
pub(super) fn numbered(tcp: HttpConnector) -> Connector {
    tcp.map_response(Numbered::new)
}

// === impl Numbered ===

impl Numbered {
    fn new(stream: TokioIo<TcpStream>) -> Self {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(0);
        Self { stream, id: ConnectionId(CONNECTIONS.fetch_add(1, Ordering::Relaxed)) }
    }
}

impl Connection for Numbered {
    fn connected(&self) -> Connected {
        self.stream.connected().extra(self.id)
    }
}

impl Read for Numbered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for Numbered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::super::{KubeletEndpoint, PodListClient};
    use crate::kubelet::tls::Trust;

    const LIST: &str = r#"{"kind":"PodList","items":[]}"#;

    /// Answers so many requests on one connection and closes it.
    async fn answer(listener: &TcpListener, requests: usize) {
        let (mut stream, _) = listener.accept().await.unwrap();
        for left in (0..requests).rev() {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let end = if left == 0 { "close" } else { "keep-alive" };
            let length = LIST.len();
            let text = format!("HTTP/1.1 200 OK\r\nconnection: {end}\r\ncontent-length: {length}\r\n\r\n{LIST}");
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn each_connection_has_a_number_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let token_file = directory.path().join("token");
        std::fs::write(&token_file, "token").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = PodListClient::new(KubeletEndpoint {
            url: format!("http://{}", listener.local_addr().unwrap()),
            token_file,
            trust: Trust { authorities: "none".into(), certificate: "none".into() },
            timeout: Duration::from_secs(60),
        });
        let client = client.unwrap();
        let kubelet = async {
            answer(&listener, 2).await;
            answer(&listener, 1).await;
        };
        let daemon = async {
            let mut seen = Vec::new();
            for _ in 0..3 {
                seen.push(client.list().await.unwrap().connection.expect("a number"));
            }
            seen
        };
        let (seen, ()) = tokio::join!(daemon, kubelet);
        assert!(seen[0] == seen[1] && seen[1] != seen[2], "{seen:?}");
    }
}

//! Port forwarding over WebSocket, as an API server leaves it to the kubelet and its container runtime
//! (`cri-streaming/pkg/streaming/portforward`).
//!
//! A runtime dials the loopback interface of the pod's network namespace. Here all pods are in one namespace, and what stands
//! for a pod has an address of 127.0.0.0/8 to itself, which is its `status.podIP`: that is dialled.

use std::io;
use std::net::{IpAddr, SocketAddr};

use futures::future::join_all;
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use super::object::{self, Object};
use super::status::{Answer, Refusal};

/// What a client offers that wants to go on in WebSocket (RFC 6455).
#[derive(Clone, Debug, Default)]
pub(crate) struct Offer {
    /// `Sec-WebSocket-Key`.
    pub(crate) key: String,
    /// `Sec-WebSocket-Protocol`.
    pub(crate) protocols: String,
}

/// Ports of a pod that are forwarded.
#[derive(Debug)]
pub(crate) struct Forwarding {
    /// `Sec-WebSocket-Accept`.
    pub(crate) accept: String,
    address: IpAddr,
    ports: Vec<u16>,
    /// Here the pod's UID.
    sandbox: String,
}

/// The one protocol that clients of this project offer and a kubelet knows. A kubelet knows `v4.base64.channel.k8s.io` too.
pub(crate) const PROTOCOL: &str = "v4.channel.k8s.io";

/// Whether the kubelet knows one of the protocols; it answers 403 and no words otherwise.
pub(crate) fn is_known(offer: &Offer) -> bool {
    offer.protocols.split(',').any(|protocol| protocol.trim() == PROTOCOL)
}

/// Ports of a query, each given by itself or several with commas between them.
fn ports(query: &str) -> Answer<Vec<u16>> {
    let given = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "ports").map(|(_, value)| value);
    let given: Vec<String> = given.flat_map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    let port = |text: &String| text.parse().ok().filter(|port| *port > 0);
    let ports: Option<Vec<u16>> = given.iter().map(port).collect();
    let ports = ports.ok_or_else(|| Refusal::bad_request(format!("unable to parse {given:?} as ports")))?;
    if ports.is_empty() { Err(Refusal::bad_request("query parameter \"ports\" is required")) } else { Ok(ports) }
}

/// A message of a channel.
fn frame(channel: u8, bytes: &[u8]) -> Message {
    Message::binary([&[channel], bytes].concat())
}

// === impl Forwarding ===

impl Forwarding {
    pub(crate) fn new(pod: &Object, offer: Option<&Offer>, query: &str) -> Answer<Self> {
        if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
            return Err(Refusal::bad_request(format!("pod {} does not have a host assigned", object::name(pod))));
        }
        let offer = offer.ok_or_else(|| Refusal::bad_request("Upgrade request required"))?;
        let ports = ports(query)?;
        let address = pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok());
        let address = address.ok_or_else(|| Refusal::internal("the pod has no address"))?;
        let accept = derive_accept_key(offer.key.as_bytes());
        Ok(Self { accept, address, ports, sandbox: object::uid(pod).to_owned() })
    }

    /// Forwards until the client closes, or until the pod has closed all connections.
    pub(crate) async fn run(self, upgrade: OnUpgrade) {
        let stream = match upgrade.await {
            Ok(stream) => TokioIo::new(stream),
            Err(error) => return tracing::debug!(%error, "a connection broke before it was upgraded"),
        };
        let (mut sink, mut source) = WebSocketStream::from_raw_socket(stream, Role::Server, None).await.split();
        let (to_client, mut frames) = mpsc::channel(16);
        let (mut pipes, mut pairs) = (Vec::new(), Vec::new());
        for (data, port) in (0..).step_by(2).zip(&self.ports) {
            let (pipe, from_client) = mpsc::channel(16);
            pipes.push(pipe);
            pairs.push(self.pair(data, *port, from_client, to_client.clone()));
        }
        drop(to_client);
        let write = async move {
            while let Some(frame) = frames.recv().await {
                sink.send(frame).await?;
            }
            sink.close().await
        };
        let read = async move {
            while let Some(Ok(message)) = source.next().await {
                // Nobody reads what comes for an error channel, or for a channel that isn't there.
                if let Message::Binary(bytes) = message
                    && let Some((channel, bytes)) = bytes.split_first()
                    && channel % 2 == 0
                    && let Some(pipe) = pipes.get(usize::from(channel / 2))
                {
                    let _ended = pipe.send(bytes.to_vec()).await;
                }
            }
            drop(pipes);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            (_, written) = async { tokio::join!(join_all(pairs), write) } => {
                if let Err(error) = written {
                    tracing::debug!(%error, "a client went away");
                }
            }
            () = read => {}
        }
    }

    /// Serves the channels of a port: data, and errors on the next one. Each begins with the port.
    async fn pair(&self, data: u8, port: u16, from_client: Receiver<Vec<u8>>, to_client: Sender<Message>) {
        for channel in [data, data + 1] {
            let _ended = to_client.send(frame(channel, &port.to_le_bytes())).await;
        }
        let address = SocketAddr::new(self.address, port);
        if let Err(error) = carry(address, data, from_client, &to_client).await {
            let error = match error.kind() {
                io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
                _ => error.to_string(),
            };
            let text = format!(
                "error forwarding port {port} to pod {}, uid : failed to connect to localhost:{port} inside namespace: dial \
                 tcp4 {address}: {error}",
                self.sandbox
            );
            let _ended = to_client.send(frame(data + 1, text.as_bytes())).await;
        }
    }
}

async fn carry(
    address: SocketAddr,
    channel: u8,
    mut from_client: Receiver<Vec<u8>>,
    to_client: &Sender<Message>,
) -> io::Result<()> {
    let mut pod = TcpStream::connect(address).await?;
    let (mut from_pod, mut to_pod) = pod.split();
    let forth = async {
        while let Some(bytes) = from_client.recv().await {
            to_pod.write_all(&bytes).await?;
        }
        Ok(())
    };
    let back = async {
        let mut buffer = vec![0; 32 << 10];
        loop {
            let length = from_pod.read(&mut buffer).await?;
            if length == 0 || to_client.send(frame(channel, &buffer[..length])).await.is_err() {
                return Ok(());
            }
        }
    };
    tokio::select! { biased; ended = back => ended, ended = forth => ended }
}

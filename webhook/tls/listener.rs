//! The TLS listener, which authenticates clients.
//!
//! Every handshake is a task of its own with a deadline, so one that stalls holds up nobody. When too many are under way the
//! oldest is given up: an honest one takes milliseconds.
//!
//! A client may present a certificate and need not; the API server has none. Any is accepted whose key the client can prove to
//! own, and who signed it is checked afterwards: a certificate of some other authority must not cost a review.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::credentials::provider;
use super::{Identity, SchedulerAuthority};

/// Longest time for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes under way at one time.
const PENDING: usize = 256;

/// The client of a connection, for handlers: `ConnectInfo<Caller>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Where the connection comes from.
    pub address: SocketAddr,
    /// Whether its client certificate was signed by the scheduler's authority when the connection began.
    pub is_scheduler: bool,
}

/// Accepts TLS connections, for HTTP/2 from clients that speak it, and for HTTP/1.1 from others.
pub struct TlsListener {
    tcp: TcpListener,
    tls: TlsAcceptor,
    scheduler: Option<SchedulerAuthority>,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, Caller)>>,
    /// The oldest first.
    pending: VecDeque<AbortHandle>,
}

/// Accepts any client certificate whose key the client has.
#[derive(Debug)]
struct Ask(Arc<CryptoProvider>);

// === impl TlsListener ===

impl TlsListener {
    /// Serves on a bound port, and authenticates clients whose certificate `scheduler` signed.
    pub fn new(
        tcp: TcpListener,
        identity: Identity,
        scheduler: Option<SchedulerAuthority>,
    ) -> Result<Self, rustls::Error> {
        let provider = provider();
        let config =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let config = config.with_client_cert_verifier(Arc::new(Ask(provider)));
        let mut config = config.with_cert_resolver(Arc::new(identity));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let tls = TlsAcceptor::from(Arc::new(config));
        Ok(Self { tcp, tls, scheduler, handshakes: JoinSet::new(), pending: VecDeque::new() })
    }

    fn begin(&mut self, stream: TcpStream, address: SocketAddr) {
        self.pending.retain(|handshake| !handshake.is_finished());
        if self.pending.len() >= PENDING
            && let Some(oldest) = self.pending.pop_front()
        {
            oldest.abort();
        }
        let (tls, scheduler) = (self.tls.clone(), self.scheduler.clone());
        self.pending.push_back(self.handshakes.spawn(async move {
            match tokio::time::timeout(HANDSHAKE, shake_hands(tls, scheduler, stream, address)).await {
                Ok(Ok(accepted)) => Some(accepted),
                Ok(Err(error)) => {
                    tracing::debug!(%address, %error, "a TLS handshake failed");
                    None
                }
                Err(_) => {
                    tracing::debug!(%address, "a TLS handshake was too slow");
                    None
                }
            }
        }));
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = Caller;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                (stream, address) = Listener::accept(&mut self.tcp) => self.begin(stream, address),
                Some(ended) = self.handshakes.join_next() => {
                    if let Ok(Some(accepted)) = ended {
                        return accepted;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(Caller { address: self.tcp.local_addr()?, is_scheduler: false })
    }
}

/// The handshake, and who the client is.
async fn shake_hands(
    tls: TlsAcceptor,
    scheduler: Option<SchedulerAuthority>,
    stream: TcpStream,
    address: SocketAddr,
) -> io::Result<(TlsStream<TcpStream>, Caller)> {
    stream.set_nodelay(true)?;
    let stream = tls.accept(stream).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let is_scheduler = scheduler.is_some_and(|scheduler| scheduler.has_signed(chain));
    Ok((stream, Caller { address, is_scheduler }))
}

// === impl Ask ===

impl ClientCertVerifier for Ask {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// None: a client that has a certificate presents it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn oldest_handshake_is_dropped_beyond_the_limit() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let mut listener = TlsListener::new(tcp, Identity::unknown(), None).unwrap();
        let mut clients = Vec::new();
        for _ in 0..PENDING + 3 {
            clients.push(TcpStream::connect(address).await.unwrap());
            let (stream, address) = listener.tcp.accept().await.unwrap();
            listener.begin(stream, address);
        }
        assert_eq!(listener.pending.len(), PENDING);
        for _ in 0..3 {
            assert!(listener.handshakes.join_next().await.unwrap().unwrap_err().is_cancelled());
        }
        assert!(listener.handshakes.try_join_next().is_none());
    }
}

//! The door: TLS, with who it is that calls.
//!
//! Every handshake is a task of its own with a deadline, so one that stalls holds up nobody. When too many are under way the
//! oldest is given up: an honest one takes milliseconds.
//!
//! A client may show a certificate and need not; the API server has none. Any is accepted whose key the client can prove to
//! own, and what it is worth is asked afterwards: a certificate of some other authority must not cost a review.

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
/// As ALPN names it.
pub const HTTP2: &[u8] = b"h2";
/// Handshakes under way at one time.
const PENDING: usize = 256;

/// Who calls, for handlers: `ConnectInfo<Caller>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Where the connection comes from.
    pub address: SocketAddr,
    /// What it showed of itself.
    pub shown: Shown,
}

/// What a client's certificate is worth. It was looked at when the connection began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing, or a certificate for which nobody here vouches.
    Nothing,
    /// A certificate of the scheduler's authority.
    Scheduler,
    /// A certificate of our own Service: the other replica.
    Replica,
}

/// Accepts TLS connections, for HTTP/2 from clients that speak it, and for HTTP/1.1 from others.
#[derive(Debug)]
pub struct TlsListener {
    tcp: TcpListener,
    acceptor: Acceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, Caller)>>,
    /// The oldest first.
    pending: VecDeque<AbortHandle>,
}

/// What a handshake needs.
#[derive(Clone)]
struct Acceptor {
    tls: TlsAcceptor,
    identity: Identity,
    scheduler: Option<SchedulerAuthority>,
}

/// Takes any certificate whose key its owner has.
#[derive(Debug)]
struct Ask(Arc<CryptoProvider>);

// === impl TlsListener ===

impl TlsListener {
    /// Serves on a port that is bound. Callers whom `scheduler` vouches for are told from others.
    pub fn new(
        tcp: TcpListener,
        identity: Identity,
        scheduler: Option<SchedulerAuthority>,
    ) -> Result<Self, rustls::Error> {
        let provider = provider();
        let config =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let config = config.with_client_cert_verifier(Arc::new(Ask(provider)));
        let mut config = config.with_cert_resolver(Arc::new(identity.clone()));
        config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
        let acceptor = Acceptor { tls: TlsAcceptor::from(Arc::new(config)), identity, scheduler };
        Ok(Self { tcp, acceptor, handshakes: JoinSet::new(), pending: VecDeque::new() })
    }

    fn begin(&mut self, stream: TcpStream, address: SocketAddr) {
        self.pending.retain(|handshake| !handshake.is_finished());
        if self.pending.len() >= PENDING
            && let Some(oldest) = self.pending.pop_front()
        {
            oldest.abort();
        }
        let acceptor = self.acceptor.clone();
        self.pending.push_back(self.handshakes.spawn(async move {
            let handshake = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream, address));
            match handshake.await {
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
        Ok(Caller { address: self.tcp.local_addr()?, shown: Shown::Nothing })
    }
}

// === impl Acceptor ===

impl Acceptor {
    async fn accept(self, stream: TcpStream, address: SocketAddr) -> io::Result<(TlsStream<TcpStream>, Caller)> {
        stream.set_nodelay(true)?;
        let stream = self.tls.accept(stream).await?;
        let shown = stream.get_ref().1.peer_certificates().map_or(Shown::Nothing, |chain| self.worth(chain));
        Ok((stream, Caller { address, shown }))
    }

    fn worth(&self, chain: &[CertificateDer<'_>]) -> Shown {
        let (Some((certificate, intermediates)), now) = (chain.split_first(), UnixTime::now()) else {
            return Shown::Nothing;
        };
        if self.identity.now().is_some_and(|own| own.vouch(certificate, intermediates, now).is_ok()) {
            Shown::Replica
        } else if self.scheduler.as_ref().is_some_and(|scheduler| scheduler.vouch(certificate, intermediates, now)) {
            Shown::Scheduler
        } else {
            Shown::Nothing
        }
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").finish_non_exhaustive()
    }
}

// === impl Ask ===

impl ClientCertVerifier for Ask {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// None: a client that has a certificate shows it.
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
    async fn of_too_many_handshakes_the_oldest_is_given_up() {
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

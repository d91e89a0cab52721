//! POST over HTTPS, on kept connections, to a server whose certificate is checked against one authority.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The largest answer that is read.
const ANSWER_LIMIT: usize = 64 << 20;

/// Whom to believe, and who we are; all PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trust {
    /// What has signed the server's certificate.
    pub authority: String,
    /// Whom the certificate must name, unless it is the URL's host.
    pub name: Option<String>,
    /// Our own certificate and its key, for a server that wants to see one.
    pub identity: Option<(String, String)>,
}

/// A client with its connections.
#[derive(Clone, Debug)]
pub struct Https {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Shown with every request, if it isn't empty.
    token: String,
}

/// Clients that are kept, by the servers that they trust.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<HashMap<Trust, Https>>);

// === impl Clients ===

impl Clients {
    pub(crate) fn get(&self, trust: &Trust) -> anyhow::Result<Https> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = known.get(trust) {
            return Ok(client.clone());
        }
        let client = Https::new(trust)?;
        known.insert(trust.clone(), client.clone());
        Ok(client)
    }
}

// === impl Https ===

impl Https {
    /// A client without connections.
    pub fn new(trust: &Trust) -> anyhow::Result<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(trust.authority.as_bytes()) {
            roots.add(certificate.context("reading the authority")?).context("taking in the authority")?;
        }
        let config = config.with_root_certificates(roots);
        let config = match &trust.identity {
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>()?;
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?
            }
            None => config.with_no_client_auth(),
        };
        let mut builder = HttpsConnectorBuilder::new().with_tls_config(config).https_only();
        if let Some(name) = &trust.name {
            let name = name.clone().try_into().with_context(|| format!("{name:?} is no name of a server"))?;
            builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let connector = builder.enable_http1().build();
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), token: String::new() })
    }

    /// With every request, from now on.
    #[must_use]
    pub fn bearing(self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self }
    }

    /// Posts JSON to a URL, in the name of `host` if that isn't the URL's, and waits for the whole answer.
    pub async fn post(
        &self,
        url: &str,
        host: Option<&str>,
        body: Vec<u8>,
        timeout: Duration,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request =
            Request::post(url).header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json");
        request = request.header(CONTENT_LENGTH, body.len());
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        if !self.token.is_empty() {
            request = request.header(AUTHORIZATION, format!("Bearer {}", self.token));
        }
        let request = request.body(Full::new(body.into()))?;
        let answer = async {
            let answer = self.client.request(request).await?;
            let code = answer.status();
            let body =
                Limited::new(answer.into_body(), ANSWER_LIMIT).collect().await.map_err(anyhow::Error::from_boxed)?;
            anyhow::Ok((code, body.to_bytes()))
        };
        // In the words of Go, in which the real callers tell it.
        tokio::time::timeout(timeout, answer).await.unwrap_or_else(|_elapsed| bail!("context deadline exceeded"))
    }
}

#[cfg(test)]
mod tests {
    use hyper::Response;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::server::WebPkiClientVerifier;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::pki;

    /// A server that wants to see a certificate of the same authority; where it is.
    async fn server(authority: &pki::Authority) -> std::net::SocketAddr {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let asks = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build().unwrap();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, authority).unwrap();
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = config.with_client_cert_verifier(asks).with_single_cert(vec![own.der().clone()], key).unwrap();
        let (tls, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = tls.accept(stream).await else { continue };
                let answer = service_fn(|_| async { anyhow::Ok(Response::new(Full::new(Bytes::from("seen")))) });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        address
    }

    #[tokio::test]
    async fn a_server_that_asks_for_a_certificate_sees_ours() {
        let authority = pki::authority("ca").unwrap();
        let url = format!("https://{}/", server(&authority).await);
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(Vec::new()).unwrap().signed_by(&key, &authority).unwrap();
        let mut trust = Trust { authority: authority.pem(), ..Trust::default() };
        let post = async |trust: &Trust| {
            Https::new(trust).unwrap().post(&url, None, b"{}".to_vec(), Duration::from_secs(60)).await
        };
        post(&trust).await.unwrap_err();
        trust.identity = Some((own.pem(), key.serialize_pem()));
        assert_eq!(post(&trust).await.unwrap(), (StatusCode::OK, Bytes::from("seen")));
    }
}

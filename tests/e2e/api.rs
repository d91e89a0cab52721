//! The API server as an administrator, or an account, sees it: JSON in, JSON out.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use serde_json::Value;

use crate::certs::Pki;

/// Longest wait for one answer.
const DEADLINE: Duration = Duration::from_secs(20);

/// A client, most often with every right.
#[derive(Clone, Debug)]
pub struct Api {
    base: String,
    /// What shows who it is, where no certificate does.
    token: Option<String>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// What a patch is applied to.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// The object itself.
    Object,
    /// Subresource `status` of the object.
    Status,
}

// === impl Api ===

impl Api {
    /// An administrator's client of the API server at this port.
    pub fn new(pki: &Pki, port: u16) -> anyhow::Result<Self> {
        let key = PrivateKeyDer::from_pem_file(pki.key("admin")).context("reading the administrator's key")?;
        let own = vec![certificate(&pki.certificate("admin"))?];
        let tls = trusting(&pki.certificate("ca"))?.with_client_auth_cert(own, key)?;
        Ok(Self::over(tls, format!("https://127.0.0.1:{port}"), None))
    }

    /// A client with the token of a kubeconfig that [`Pki::token_kubeconfig`] has written, as it is now.
    pub fn of_account(kubeconfig: &Path) -> anyhow::Result<Self> {
        let config: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
        let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).context("a text");
        let tls = trusting(Path::new(text("/clusters/0/cluster/certificate-authority")?))?.with_no_client_auth();
        let token = std::fs::read_to_string(text("/users/0/user/tokenFile")?)?;
        Ok(Self::over(tls, text("/clusters/0/cluster/server")?.to_owned(), Some(token.trim().to_owned())))
    }

    fn over(tls: ClientConfig, base: String, token: Option<String>) -> Self {
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Self { base, token, client }
    }

    /// Reads an object or a list.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, path, "application/json", None).await?.1
    }

    /// Reads an object that may not be there.
    pub async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        match self.call(Method::GET, path, "application/json", None).await? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (_, answer) => answer.map(Some),
        }
    }

    /// Creates an object in a collection.
    pub async fn create(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.call(Method::POST, path, "application/json", Some(object)).await?.1
    }

    /// Merges `change` into it (RFC 7386).
    pub async fn patch(&self, path: &str, part: Part, change: &Value) -> anyhow::Result<Value> {
        let path = match part {
            Part::Object => path.to_owned(),
            Part::Status => format!("{path}/status"),
        };
        self.call(Method::PATCH, &path, "application/merge-patch+json", Some(change)).await?.1
    }

    /// Deletes an object, or all of a collection, without a grace period; what isn't there is gone already.
    pub async fn delete(&self, path: &str) -> anyhow::Result<()> {
        let path = format!("{path}?gracePeriodSeconds=0&propagationPolicy=Background");
        match self.call(Method::DELETE, &path, "application/json", None).await? {
            (StatusCode::NOT_FOUND, _) => Ok(()),
            (_, answer) => answer.map(drop),
        }
    }

    /// Whether it answers that it is ready.
    pub async fn is_ready(&self) -> bool {
        self.call(Method::GET, "/readyz", "application/json", None).await.is_ok_and(|(status, _)| status.is_success())
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        content: &'static str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, anyhow::Result<Value>)> {
        let said = || format!("{method} {path}");
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder().method(method.clone()).uri(format!("{}{path}", self.base));
        let request = request.header(CONTENT_TYPE, content).header(ACCEPT, "application/json");
        let request = match &self.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        };
        let exchange = async {
            let response = self.client.request(request.body(Full::from(body))?).await?;
            let status = response.status();
            anyhow::Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        let answer = tokio::time::timeout(DEADLINE, exchange).await.with_context(said)?;
        let (status, bytes) = answer.with_context(said)?;
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        if status.is_success() {
            return Ok((status, Ok(serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(text())))));
        }
        let refusal = serde_json::from_slice::<Value>(&bytes).ok();
        let message = refusal.and_then(|refusal| Some(refusal["message"].as_str()?.to_owned())).unwrap_or_else(text);
        Ok((status, Err(anyhow::anyhow!("{}: {status}: {message}", said()))))
    }
}

fn trusting(authority: &Path) -> anyhow::Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(authority)?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(tls.with_root_certificates(roots))
}

fn certificate(path: &Path) -> anyhow::Result<CertificateDer<'static>> {
    CertificateDer::from_pem_file(path).with_context(|| format!("reading {}", path.display()))
}

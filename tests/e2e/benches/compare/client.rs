//! Calls to an extender as kube-scheduler makes them: over one kept connection, with names of nodes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

/// An extender by its entry in a scheduler's configuration.
pub(crate) struct Extender {
    config: Value,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

// === impl Extender ===

impl Extender {
    /// Reads the certificates that the entry names.
    pub(crate) fn new(config: Value) -> anyhow::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls(&config["tlsConfig"])?).https_or_http();
        let builder = match config["tlsConfig"]["serverName"].as_str() {
            Some(name) => {
                let name = ServerName::try_from(name.to_owned()).with_context(|| format!("serverName {name}"))?;
                builder.with_server_name_resolver(FixedServerNameResolver::new(name))
            }
            None => builder,
        };
        let client = Client::builder(TokioExecutor::new()).build(builder.enable_http1().wrap_connector(connector));
        Ok(Self { config, client })
    }

    /// Whether it has this verb (`bindVerb` and the like).
    pub(crate) fn has(&self, verb: &str) -> bool {
        self.config[verb].is_string()
    }

    /// Sends `body` to a verb, and returns the answer with the time from request to last byte.
    pub(crate) async fn call(&self, verb: &str, body: &Value) -> anyhow::Result<(Duration, Value)> {
        let [prefix, path] =
            ["urlPrefix", verb].map(|key| self.config[key].as_str().with_context(|| format!("extender without {key}")));
        let url = format!("{}/{}", prefix?, path?);
        let request = Request::post(&url).header(CONTENT_TYPE, "application/json");
        let request = request.body(Full::from(serde_json::to_vec(body)?))?;
        let start = Instant::now();
        let answer = self.client.request(request).await.with_context(|| url.clone())?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await.with_context(|| url.clone())?.to_bytes();
        let time = start.elapsed();
        let said: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        // HAMi and gpushare write it beside nothing else.
        let error = said["Error"].as_str().or(said["error"].as_str()).filter(|error| !error.is_empty());
        if let (false, _) | (_, Some(_)) = (status.is_success(), error) {
            bail!("{url}: {status}: {}", error.unwrap_or_default());
        }
        Ok((time, said))
    }
}

fn tls(config: &Value) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    let path = |key: &str| config[key].as_str().map(Path::new);
    let certificate = |path: &Path| CertificateDer::from_pem_file(path).with_context(|| path.display().to_string());
    if let Some(ca) = path("caFile") {
        roots.add(certificate(ca)?)?;
    }
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    Ok(match (path("certFile"), path("keyFile")) {
        (Some(own), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).with_context(|| key.display().to_string())?;
            builder.with_client_auth_cert(vec![certificate(own)?], key)?
        }
        _ => builder.with_no_client_auth(),
    })
}

//! Calling a webhook, on connections that are kept from call to call.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::StatusCode;
use k8s_openapi::ByteString;
use rand::seq::IndexedRandom as _;

use super::super::core::Core;
use super::super::object::text;
use super::hook::Hook;
use super::review::{Question, Reply};
use crate::https::Trust;

/// Where a webhook is.
struct Place {
    /// As errors show it, and as the request names it.
    url: String,
    /// What is dialled instead of the URL's host, which no name server knows.
    address: Option<SocketAddr>,
    trust: Trust,
}

/// Asks a webhook; an error says why there is no answer.
pub(super) async fn call(core: &Core, hook: &Hook, question: &Question) -> Result<Reply, String> {
    let place = Place::of(core, hook)?;
    let failed = |why: String| format!("failed to call webhook: {why}");
    let Place { url, address, trust } = &place;
    let client = core.webhooks.get(trust).map_err(|error| failed(format!("{error:#}")))?;
    let (dialled, host) = match address {
        Some(address) => (place.dialled(*address), Some(place.host())),
        None => (url.clone(), None),
    };
    let timeout = Duration::from_secs(hook.timeout());
    let answer = client.post(&dialled, host, question.encode(), timeout).await;
    let (status, body) = answer.map_err(|error| failed(format!("Post {url:?}: {error:#}")))?;
    if status != StatusCode::OK {
        return Err(failed(format!("the server responded with the status code {}", status.as_u16())));
    }
    question.decode(&body, hook.mutating)
}

// === impl Place ===

impl Place {
    fn of(core: &Core, hook: &Hook) -> Result<Self, String> {
        let config = hook.client_config();
        let seconds = hook.timeout();
        let bundle: Option<ByteString> = serde_json::from_value(config["caBundle"].clone()).unwrap_or_default();
        let authority = bundle.and_then(|bundle| String::from_utf8(bundle.0).ok()).unwrap_or_default();
        let service = &config["service"];
        if service.is_null() {
            let url = format!("{}?timeout={seconds}s", text(config, "/url"));
            return Ok(Self { url, address: None, trust: Trust { authority, ..Trust::default() } });
        }
        let (name, namespace) = (text(service, "/name"), text(service, "/namespace"));
        let port = service["port"].as_u64().unwrap_or(443);
        let path = text(service, "/path").trim_start_matches('/');
        let host = format!("{name}.{namespace}.svc");
        let url = format!("https://{host}:{port}/{path}?timeout={seconds}s");
        let known = core.read(|state| state.services.get(&(namespace.to_owned(), name.to_owned())).cloned());
        let failed = |why: String| format!("failed to call webhook: Post {url:?}: {why}");
        let known = known.ok_or_else(|| failed(format!("service {name:?} not found")))?;
        let address = known.choose(&mut rand::rng()).copied();
        let address = address.ok_or_else(|| failed(format!("no endpoints available for service {name:?}")))?;
        let trust = Trust { authority, name: Some(host), identity: None };
        Ok(Self { url, address: Some(address), trust })
    }

    /// `divvy-webhook.divvy-system.svc:443`.
    fn host(&self) -> &str {
        self.url.split('/').nth(2).unwrap_or_default()
    }

    fn dialled(&self, address: SocketAddr) -> String {
        self.url.replacen(self.host(), &address.to_string(), 1)
    }
}

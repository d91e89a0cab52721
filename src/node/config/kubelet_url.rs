//! Address of the kubelet's API.

use std::net::IpAddr;

use hyper::Uri;
use serde::{Deserialize, Serialize};

/// Scheme, host and port of the kubelet's API, without a slash at the end; `https` alone, as a token goes over it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct KubeletUrl(String);

// === impl KubeletUrl ===

impl KubeletUrl {
    /// The kubelet of the node with this address, on its usual port.
    pub(super) fn on_node(node: IpAddr) -> Self {
        let host = if node.is_ipv6() { format!("[{node}]") } else { node.to_string() };
        Self(format!("https://{host}:10250"))
    }

    /// The URL, to which paths that begin with a slash can be appended.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for KubeletUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bare = text.strip_suffix('/').unwrap_or(&text);
        let legal = |uri: &Uri| {
            let host = uri.host().is_some_and(|host| !host.is_empty());
            uri.scheme_str() == Some("https") && host && bare.matches('/').count() == 2 && uri.query().is_none()
        };
        match bare.parse() {
            Ok(uri) if legal(&uri) => Ok(Self(bare.to_owned())),
            _ => Err(format!("\"{text}\" is not the kubelet's address: expected https://<host>:<port>")),
        }
    }
}

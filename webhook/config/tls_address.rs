//! Addresses of the TLS listeners.

use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Who a TLS listener is for. Each has a port of its own, so that clients of one kind can't use up another's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The API server, with admission reviews.
    Reviews,
    /// kube-scheduler.
    Extender,
    /// People, with `kubectl divvy`.
    Explanations,
    /// The API server's front proxy.
    AggregatedApi,
}

/// Where the first of the TLS listeners is; the others have the next ports. With port 0 each has a port that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TlsAddress(SocketAddr);

/// Ports beside the first.
const OTHERS: u16 = Listener::AggregatedApi as u16;

// === impl TlsAddress ===

impl TlsAddress {
    /// Address of a listener.
    pub fn listener(self, listener: Listener) -> SocketAddr {
        let port = if self.0.port() == 0 { 0 } else { self.0.port() + listener as u16 };
        SocketAddr::new(self.0.ip(), port)
    }
}

impl Default for TlsAddress {
    fn default() -> Self {
        Self((Ipv4Addr::UNSPECIFIED, 8443).into())
    }
}

impl TryFrom<String> for TlsAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let most = u16::MAX - OTHERS;
        let address = text.parse::<SocketAddr>().ok().filter(|address| address.port() <= most);
        let refusal =
            || format!("\"{text}\" is no address with a port up to {most}: expected one such as 0.0.0.0:8443");
        address.map(Self).ok_or_else(refusal)
    }
}

impl From<TlsAddress> for String {
    fn from(address: TlsAddress) -> Self {
        address.0.to_string()
    }
}

//! Addresses as keys have them.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// An address of the loopback interface: only processes of the same pod or host reach it, and `kubectl port-forward`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct LoopbackAddress(SocketAddr);

// === impl LoopbackAddress ===

impl LoopbackAddress {
    /// A default: this port of 127.0.0.1.
    pub fn port(port: u16) -> Self {
        Self((Ipv4Addr::LOCALHOST, port).into())
    }

    /// The address.
    pub const fn get(self) -> SocketAddr {
        self.0
    }
}

impl TryFrom<String> for LoopbackAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let address = text.parse::<SocketAddr>().ok().filter(|address| address.ip().is_loopback());
        address.map(Self).ok_or_else(|| {
            format!(
                "\"{text}\" is not a loopback address with a port: expected one such as 127.0.0.1:9404 or [::1]:9404"
            )
        })
    }
}

impl fmt::Display for LoopbackAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

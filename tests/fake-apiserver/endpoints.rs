//! EndpointSlices of programs that listen at loopback addresses, which API servers refuse in one.
//!
//! A program at 127.b.c.d reports 10.b.c.d as its pod's address; who connects to its Service translates that back.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::Value;

/// Pod address of a program that listens at a loopback address.
pub fn pod_ip(listening: Ipv4Addr) -> Ipv4Addr {
    with_first_octet(10, listening)
}

/// Listening address of a slice's first endpoint.
pub fn first_endpoint(slice: &Value) -> Option<SocketAddr> {
    let pod_ip = slice["endpoints"][0]["addresses"][0].as_str()?.parse().ok()?;
    let port = slice["ports"][0]["port"].as_u64()?.try_into().ok()?;
    Some(SocketAddr::from((with_first_octet(127, pod_ip), port)))
}

fn with_first_octet(first: u8, address: Ipv4Addr) -> Ipv4Addr {
    let [_, b, c, d] = address.octets();
    Ipv4Addr::new(first, b, c, d)
}

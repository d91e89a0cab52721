//! What Divvy's programs say of themselves over plain HTTP.

use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Reads `/metrics`, `/readyz` and the like.
pub async fn page(address: SocketAddr, name: &str) -> anyhow::Result<String> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let answer = client.get(format!("http://{address}/{name}").parse()?).await?;
    let text = answer.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

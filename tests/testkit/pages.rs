//! Plain HTTP pages of our programs: metrics and readiness.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// The text of a page such as `metrics`; an error unless the answer is 200.
pub async fn page(address: SocketAddr, page: &str) -> anyhow::Result<String> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let url = format!("http://{address}/{page}");
    let answer = client.get(url.parse()?).await.with_context(|| format!("getting {url}"))?;
    let code = answer.status();
    let text = answer.into_body().collect().await.with_context(|| format!("reading {url}"))?.to_bytes();
    let text = String::from_utf8_lossy(&text).into_owned();
    ensure!(code.is_success(), "{url} answers {code}: {}", text.trim_end());
    Ok(text)
}

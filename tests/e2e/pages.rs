//! What Divvy's programs say of themselves over plain HTTP, and what its documentation says that readers type.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Longest wait for a page: at the address of a pod that is gone nobody says so.
const ANSWERS: Duration = Duration::from_secs(10);

/// Reads `/metrics`, `/readyz` and the like.
pub async fn page(address: SocketAddr, name: &str) -> anyhow::Result<String> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let page = async {
        let answer = client.get(format!("http://{address}/{name}").parse()?).await?;
        anyhow::Ok(answer.into_body().collect().await?.to_bytes())
    };
    let text = tokio::time::timeout(ANSWERS, page).await.with_context(|| format!("{address} doesn't answer"))??;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The blocks of commands in a section of a page, in order.
pub fn commands(page: &Path, section: &str) -> anyhow::Result<Vec<String>> {
    let text = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let title = format!("\n## {section}\n");
    let (_, text) = text.split_once(&title).with_context(|| format!("{}: no {section}", page.display()))?;
    let (text, _) = text.split_once("\n## ").unwrap_or((text, ""));
    let blocks = text.split("```sh\n").skip(1);
    Ok(blocks.filter_map(|block| Some(block.split_once("```")?.0.to_owned())).collect())
}

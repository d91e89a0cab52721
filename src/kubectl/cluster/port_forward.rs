//! One HTTP request to a port of a pod, over the stream that the API server and the kubelet forward.

use std::error::Error;
use std::pin::pin;

use futures::future::{Either, select};
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Collected, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::chain;

/// Longest body that is read, in MiB. A node with thousands of shares answers a few.
const LIMIT: usize = 64;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The stream doesn't reach the port: the kubelet's words.
    Connection(String),
    /// What is at the port doesn't answer as it should.
    Answer(String),
}

/// Sends a GET over a forwarded stream and reads the answer's body. `refused` is the stream's error channel: it resolves with
/// the kubelet's words, or with nothing once the stream has ended.
pub(super) async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    refused: impl Future<Output = Option<String>>,
    path: &str,
) -> Result<Bytes, Failure> {
    match select(pin!(exchange(stream, path)), pin!(refused)).await {
        Either::Left((Ok(body), _)) => Ok(body),
        // A stream that ends without an answer may have been refused: its end and the words for it come separately.
        Either::Left((Err(problem), refused)) => {
            Err(refused.await.map_or(Failure::Answer(problem), Failure::Connection))
        }
        Either::Right((Some(words), _)) => Err(Failure::Connection(words)),
        Either::Right((None, exchange)) => exchange.await.map_err(Failure::Answer),
    }
}

async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> Result<Bytes, String> {
    let incomplete = |error: &(dyn Error + 'static)| format!("gives no complete answer: {}", chain(error));
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| incomplete(&error))?;
    let answer = async move {
        let request = Request::get(path).header(HOST, "localhost").body(Empty::<Bytes>::new());
        let request = request.map_err(|error| incomplete(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| incomplete(&error))?;
        if answer.status() != StatusCode::OK {
            return Err(format!("answers {}", answer.status()));
        }
        let body = Limited::new(answer.into_body(), LIMIT << 20).collect().await;
        body.map(Collected::to_bytes).map_err(|error| {
            if error.is::<LengthLimitError>() {
                format!("answers with more than {LIMIT} MiB")
            } else {
                incomplete(&*error)
            }
        })
    };
    // The connection moves the bytes; its own end is told to the answer.
    match select(pin!(answer), pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        Either::Right((_, answer)) => answer.await,
    }
}

#[cfg(test)]
mod tests;

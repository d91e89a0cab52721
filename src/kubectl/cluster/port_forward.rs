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

/// Why an exchange failed.
enum Problem {
    /// The stream ended before an answer began.
    NoAnswer(String),
    /// An answer that is incomplete, or another than the one that is expected.
    BadAnswer(String),
}

/// Sends a GET over a forwarded stream and reads the answer's body. `forward` gives a stream and its error channel, which
/// resolves with the kubelet's words, or with nothing once the stream has ended.
pub(super) async fn get<F, S, R, E>(forward: impl Fn() -> F, path: &str) -> Result<Result<Bytes, Failure>, E>
where
    F: Future<Output = Result<(S, R), E>>,
    S: AsyncRead + AsyncWrite + Unpin,
    R: Future<Output = Option<String>>,
{
    let (stream, refused) = forward().await?;
    let (problem, words) = match select(pin!(exchange(stream, path)), pin!(refused)).await {
        Either::Left((Ok(body), _)) => return Ok(Ok(body)),
        // A stream that ends without an answer may have been refused: its end and the words for it come separately.
        Either::Left((Err(problem), refused)) => (problem, refused.await),
        Either::Right((Some(words), _)) => return Ok(Err(Failure::Connection(words))),
        Either::Right((None, exchange)) => match exchange.await {
            Ok(body) => return Ok(Ok(body)),
            Err(problem) => (problem, None),
        },
    };
    Ok(Err(match (problem, words) {
        (_, Some(words)) => Failure::Connection(words),
        (Problem::BadAnswer(problem), None) => Failure::Answer(problem),
        // A connection that is closed before its reader has read all is reset, and the reset overtakes the words. Where nothing
        // is sent, they arrive.
        (Problem::NoAnswer(problem), None) => {
            let (_silent, refused) = forward().await?;
            refused.await.map_or(Failure::Answer(problem), Failure::Connection)
        }
    }))
}

async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> Result<Bytes, Problem> {
    let incomplete = |error: &(dyn Error + 'static)| format!("gives no complete answer: {}", chain(error));
    let unanswered = |error: hyper::Error| {
        if error.is_parse() { Problem::BadAnswer(incomplete(&error)) } else { Problem::NoAnswer(incomplete(&error)) }
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(unanswered)?;
    let answer = async move {
        let request = Request::get(path).header(HOST, "localhost").body(Empty::<Bytes>::new());
        let request = request.map_err(|error| Problem::BadAnswer(incomplete(&error)))?;
        let answer = sender.send_request(request).await.map_err(unanswered)?;
        if answer.status() != StatusCode::OK {
            return Err(Problem::BadAnswer(format!("answers {}", answer.status())));
        }
        let body = Limited::new(answer.into_body(), LIMIT << 20).collect().await;
        body.map(Collected::to_bytes).map_err(|error| {
            Problem::BadAnswer(if error.is::<LengthLimitError>() {
                format!("answers with more than {LIMIT} MiB")
            } else {
                incomplete(&*error)
            })
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

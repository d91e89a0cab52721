use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::pin::Pin;

use futures::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::*;

type Words = Pin<Box<dyn Future<Output = Option<String>>>>;

/// What is made of streams that are forwarded in this order.
async fn got<const N: usize>(streams: [(DuplexStream, Words); N]) -> Result<Bytes, Failure> {
    let streams = RefCell::new(streams.into_iter());
    let forward = async || Ok::<_, Infallible>(streams.borrow_mut().next().expect("no more streams are asked for"));
    get(forward, "/usage").await.unwrap_or_else(|never| match never {})
}

/// A stream that has ended before anything is sent, and without words.
fn ended() -> (DuplexStream, Words) {
    (duplex(1).0, Box::pin(ready(None)))
}

/// What is made of a server that reads the request, writes this and closes.
async fn told(answer: &str, refused: impl Future<Output = Option<String>> + 'static) -> Result<Bytes, Failure> {
    let (ours, mut theirs) = duplex(1 << 16);
    let serve = async move {
        let request = head(&mut theirs).await;
        assert_eq!(request, "GET /usage HTTP/1.1\r\nhost: localhost\r\n\r\n");
        theirs.write_all(answer.as_bytes()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(got([(ours, Box::pin(refused)), ended()]), serve);
    answer
}

async fn head(stream: &mut DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn answer(why: &str) -> Result<Bytes, Failure> {
    Err(Failure::Answer(why.to_owned()))
}

#[tokio::test]
async fn whole_bodies_are_answers() {
    let ok = Ok(Bytes::from("{}"));
    assert_eq!(told("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", pending()).await, ok);
    assert_eq!(
        told("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", ready(None)).await,
        ok
    );
}

#[tokio::test]
async fn what_is_no_answer_is_described() {
    let ended = async |text: &str| told(text, ready(None)).await;
    assert_eq!(ended("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await, answer("answers 404 Not Found"));
    let nothing = "gives no complete answer: connection closed before message completed";
    assert_eq!(ended("").await, answer(nothing));
    let half =
        "gives no complete answer: error reading a body from connection: end of file before message length reached";
    assert_eq!(ended("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{").await, answer(half));
    let other = "gives no complete answer: invalid HTTP version parsed";
    assert_eq!(ended("SSH-2.0-OpenSSH_9.6\r\n\r\n").await, answer(other));
}

#[tokio::test]
async fn kubelet_words_explain_a_stream_without_answer() {
    let refused = Err(Failure::Connection("connection refused".to_owned()));
    let words = || Some("connection refused".to_owned());
    // They come after the stream's end, or although it stays open.
    let late = async move {
        tokio::task::yield_now().await;
        words()
    };
    assert_eq!(told("", late).await, refused);
    let (ours, _theirs) = duplex(1 << 16);
    assert_eq!(got([(ours, Box::pin(ready(words())))]).await, refused);
}

#[tokio::test]
async fn kubelet_words_overtaken_by_a_reset_come_on_a_silent_stream() {
    let (ours, mut theirs) = duplex(1 << 16);
    let words = async move {
        assert!(theirs.read(&mut [0]).now_or_never().is_none(), "the stream is open, and nothing is sent");
        Some("connection refused".to_owned())
    };
    let refused = Err(Failure::Connection("connection refused".to_owned()));
    assert_eq!(got([ended(), (ours, Box::pin(words))]).await, refused);
}

#[tokio::test]
async fn body_without_end_is_refused() {
    let (ours, mut theirs) = duplex(1 << 20);
    let serve = async move {
        head(&mut theirs).await;
        theirs.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await.unwrap();
        while theirs.write_all(&[b' '; 1 << 14]).await.is_ok() {}
    };
    let (said, ()) = tokio::join!(got([(ours, Box::pin(ready(None)))]), serve);
    assert_eq!(said, answer("answers with more than 64 MiB"));
}

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;

#[tokio::test]
async fn connection_survives_certificate_rotation() {
    let (old, new) = (issue(), issue());
    let (before, after) = (Asker::new(&old, None), Asker::new(&new, None));
    let identity = known(old);
    let (address, _stop) = serve(who(), identity.clone(), None).await;
    let first = before.ask(address).await.unwrap();
    assert!(!first.1);
    after.ask(address).await.unwrap_err();
    identity.set(new);
    assert_eq!(before.ask(address).await.unwrap(), first, "the same connection");
    after.ask(address).await.unwrap();
}

#[tokio::test]
async fn handshakes_wait_for_the_first_certificate() {
    let credentials = issue();
    let (asker, identity) = (Asker::new(&credentials, None), Identity::unknown());
    let (address, _stop) = serve(who(), identity.clone(), None).await;
    asker.ask(address).await.unwrap_err();
    identity.set(credentials);
    asker.ask(address).await.unwrap();
}

#[tokio::test]
async fn scheduler_is_authenticated_by_its_authority() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scheduler-ca.crt");
    let (pem, certificate, key) = authority("system:kube-scheduler");
    std::fs::write(&file, pem).unwrap();
    let stop = CancellationToken::new();
    let scheduler = SchedulerAuthority::follow(file, stop.clone());
    let _end = stop.drop_guard();

    let data = secret();
    let own = understood(&data);
    let own_key = PrivateKeyDer::from_pem_slice(&data["tls.key"].0).unwrap();
    let (_, strange, strange_key) = authority("divvy-webhook.divvy-system.svc");
    let askers = [
        (Asker::new(&own, None), false),
        (Asker::new(&own, Some((leaf(&own), own_key))), false),
        (Asker::new(&own, Some((strange, strange_key))), false),
        (Asker::new(&own, Some((certificate, key))), true),
    ];
    let (address, _stop) = serve(who(), known(own), Some(scheduler)).await;
    for (asker, is_scheduler) in &askers {
        assert_eq!(asker.ask(address).await.unwrap().1, *is_scheduler);
    }
}

#[tokio::test]
async fn stalled_clients_do_not_block_others() {
    let credentials = issue();
    let asker = Asker::new(&credentials, None);
    let (address, _stop) = serve(who(), known(credentials), None).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    asker.ask(address).await.unwrap();
}

#[tokio::test]
async fn idle_http2_client_is_disconnected() {
    let credentials = issue();
    let connector = TlsConnector::from(Arc::new(believing(&credentials).with_no_client_auth()));
    let (address, _stop) = serve(who(), known(credentials), None).await;
    let (stream, name) = (TcpStream::connect(address).await.unwrap(), server_name());
    let mut silent = connector.with_alpn(vec![b"h2".to_vec()]).connect(name, stream).await.unwrap();
    assert_eq!(silent.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    // Time that is paused runs on whenever nobody has anything to do.
    tokio::time::pause();
    // Its own settings are all that the server says, if anything.
    drop(silent.read_to_end(&mut Vec::new()).await);
}

#[tokio::test]
async fn bytes_that_are_not_tls_are_refused() {
    let credentials = issue();
    let asker = Asker::new(&credentials, None);
    let (address, _stop) = serve(who(), known(credentials), None).await;
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let read = plain.read_to_end(&mut answer);
    drop(tokio::time::timeout(LONG, read).await.expect("the connection ends"));
    assert!(!answer.starts_with(b"HTTP"));
    asker.ask(address).await.unwrap();
}

use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;

#[tokio::test]
async fn connection_survives_certificate_rotation() {
    let (old, new) = (issue(), issue());
    let (before, after) = (Asker::new(&old, None), Asker::new(&new, None));
    let identity = known(old);
    let (address, _stop) = serve(who(), for_everybody(identity.clone())).await;
    let first = before.ask(address).await.unwrap();
    after.ask(address).await.unwrap_err();
    identity.set(new);
    assert_eq!(before.ask(address).await.unwrap(), first, "the same connection");
    after.ask(address).await.unwrap();
}

#[tokio::test]
async fn handshakes_wait_for_the_first_certificate() {
    let credentials = issue();
    let (asker, identity) = (Asker::new(&credentials, None), Identity::unknown());
    let (address, _stop) = serve(who(), for_everybody(identity.clone())).await;
    asker.ask(address).await.unwrap_err();
    identity.set(credentials);
    asker.ask(address).await.unwrap();
}

#[tokio::test]
async fn extender_serves_certificates_of_its_authority_alone() {
    let (data, strangers) = (secret(), secret());
    let own = understood(&data);
    let own_key = PrivateKeyDer::from_pem_slice(&data["tls.key"].0).unwrap();
    let askers = [
        ("no certificate", None, false),
        ("our serving certificate", Some((leaf(&own), own_key)), false),
        ("another authority's client", Some(client(&strangers)), false),
        ("the scheduler", Some(client(&data)), true),
    ];
    let askers = askers.map(|(who, certificate, is_let_in)| (who, Asker::new(&own, certificate), is_let_in));
    let identity = known(own);
    let (guarded, _stop) = serve(who(), for_scheduler(identity.clone(), Some(Gauge::default()))).await;
    let (open, _stop_too) = serve(who(), for_scheduler(identity, None)).await;
    for (who, asker, is_let_in) in &askers {
        let answer = asker.ask(guarded).await;
        assert_eq!(answer.is_ok(), *is_let_in, "{who}: {answer:?}");
        asker.ask(open).await.unwrap();
    }
}

#[tokio::test]
async fn scheduler_certificate_counts_as_long_as_its_authority() {
    let (old, new) = (secret(), secret());
    let identity = known(understood(&old));
    let (address, _stop) = serve(who(), for_scheduler(identity.clone(), Some(Gauge::default()))).await;
    Asker::new(&understood(&old), Some(client(&old))).ask(address).await.unwrap();
    identity.set(understood(&new));
    Asker::new(&understood(&new), Some(client(&old))).ask(address).await.unwrap_err();
    Asker::new(&understood(&new), Some(client(&new))).ask(address).await.unwrap();
}

#[tokio::test]
async fn stalled_clients_do_not_block_others() {
    let credentials = issue();
    let asker = Asker::new(&credentials, None);
    let (address, _stop) = serve(who(), for_everybody(known(credentials))).await;
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
    let (address, _stop) = serve(who(), for_scheduler(known(credentials), None)).await;
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
    let (address, _stop) = serve(who(), for_everybody(known(credentials))).await;
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let read = plain.read_to_end(&mut answer);
    drop(tokio::time::timeout(LONG, read).await.expect("the connection ends"));
    assert!(!answer.starts_with(b"HTTP"));
    asker.ask(address).await.unwrap();
}

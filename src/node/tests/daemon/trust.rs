//! Which certificates of a kubelet are believed, while they are replaced under the daemon's client.

use std::fs;
use std::path::Path;
use std::time::Duration;

use divvy_node::kubelet::client::{KubeletEndpoint, PodListClient};
use divvy_node::kubelet::tls::Trust;
use fake_kubelet::{Kubelet, KubeletOptions, PodsFault, Serving};

/// A kubelet, and a client that knows its files.
struct Pair {
    kubelet: Kubelet,
    client: PodListClient,
    directory: tempfile::TempDir,
}

// === impl Pair ===

impl Pair {
    async fn new(serving: Serving) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kubelet = Kubelet::start(KubeletOptions { serving, ..KubeletOptions::new(directory.path(), "node", 1) })
            .await
            .unwrap();
        let trust = Trust { authorities: kubelet.ca_file(), certificate: kubelet.certificate_file() };
        let client = PodListClient::new(KubeletEndpoint {
            url: format!("https://{}", kubelet.address()),
            token_file: kubelet.token_file(),
            trust,
            timeout: Duration::from_secs(30),
        });
        Self { client: client.unwrap(), kubelet, directory }
    }

    /// A list over a connection of its own: those that were kept are cut.
    async fn list(&self) -> Result<(), String> {
        for fault in [PodsFault::Refused, PodsFault::None] {
            self.kubelet.set_faults(|faults| faults.pods = fault);
            // Until it listens, or doesn't.
            while tokio::net::TcpStream::connect(self.kubelet.address()).await.is_ok() != (fault == PodsFault::None) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let mut listed = self.client.list().await.map(drop).map_err(|error| error.to_string());
        if listed.as_ref().is_err_and(|problem| !problem.contains("certificate")) {
            // The one that was cut.
            listed = self.client.list().await.map(drop).map_err(|error| error.to_string());
        }
        listed
    }

    /// Why the list is refused, without what differs from run to run.
    async fn refused(&self) -> String {
        let problem = self.list().await.expect_err("not trusted");
        let directory = self.directory.path().to_str().unwrap();
        let problem = problem.replace(directory, "DIR").replace(&self.kubelet.address().port().to_string(), "PORT");
        problem.split_once(": ").unwrap().1.to_owned()
    }

    async fn renew(&self, serving: Serving) {
        self.kubelet.renew_certificate(serving).await.unwrap();
    }

    /// Another kubelet's file in the place of this one's.
    async fn swap(&self, file: &Path) {
        let other = Self::new(Serving::SelfSigned).await;
        let name = file.file_name().unwrap();
        fs::copy(other.directory.path().join("pki").join(name), file).unwrap();
    }
}

#[tokio::test]
async fn kubelet_certificate_and_ca_can_be_rotated() {
    let pair = Pair::new(Serving::ByCa).await;
    fs::remove_file(pair.kubelet.certificate_file()).unwrap();
    assert_eq!(pair.list().await, Ok(()));
    pair.renew(Serving::ByCa).await;
    fs::remove_file(pair.kubelet.certificate_file()).unwrap();
    assert_eq!(pair.list().await, Ok(()));
}

#[tokio::test]
async fn certificate_file_on_the_host_is_trusted_and_reloaded() {
    let pair = Pair::new(Serving::SelfSigned).await;
    fs::remove_file(pair.kubelet.ca_file()).unwrap();
    assert_eq!(pair.list().await, Ok(()));
    pair.renew(Serving::SelfSigned).await;
    assert_eq!(pair.list().await, Ok(()));
}

#[tokio::test]
async fn kubelet_may_switch_to_a_certificate_of_the_cluster_ca() {
    let pair = Pair::new(Serving::SelfSigned).await;
    assert_eq!(pair.list().await, Ok(()));
    pair.renew(Serving::ByCa).await;
    // What it served with before stays where it was.
    pair.swap(&pair.kubelet.certificate_file()).await;
    assert_eq!(pair.list().await, Ok(()));
    pair.renew(Serving::SelfSigned).await;
    assert_eq!(pair.list().await, Ok(()));
}

#[tokio::test]
async fn untrusted_kubelet_certificate_is_refused_with_reasons() {
    let pair = Pair::new(Serving::SelfSigned).await;
    pair.swap(&pair.kubelet.certificate_file()).await;
    insta::assert_snapshot!(pair.refused().await, @r#"the kubelet's certificate is not trusted: it is of "CN=system:node:node", signed by itself, for node, localhost, 127.0.0.1; kubeletCa DIR/pki/ca.crt: did not sign it; kubeletCertificate DIR/pki/kubelet.crt: another one, of "CN=system:node:node", signed by itself, for node, localhost, 127.0.0.1; name the authority that signs it in kubeletCa, or in kubeletCertificate the file that the kubelet serves with, kubelet.crt or (if it is rotated) kubelet-server-current.pem in the kubelet's certDirectory"#);
    fs::remove_file(pair.kubelet.certificate_file()).unwrap();
    fs::write(pair.kubelet.ca_file(), "").unwrap();
    insta::assert_snapshot!(pair.refused().await, @r#"the kubelet's certificate is not trusted: it is of "CN=system:node:node", signed by itself, for node, localhost, 127.0.0.1; kubeletCa DIR/pki/ca.crt: holds no certificate; kubeletCertificate DIR/pki/kubelet.crt: I/O error: No such file or directory (os error 2); name the authority that signs it in kubeletCa, or in kubeletCertificate the file that the kubelet serves with, kubelet.crt or (if it is rotated) kubelet-server-current.pem in the kubelet's certDirectory"#);
}

#[tokio::test]
async fn replaced_ca_is_no_longer_trusted() {
    let pair = Pair::new(Serving::ByCa).await;
    assert_eq!(pair.list().await, Ok(()));
    fs::remove_file(pair.kubelet.certificate_file()).unwrap();
    pair.swap(&pair.kubelet.ca_file()).await;
    let problem = pair.refused().await;
    assert!(problem.contains("did not sign it") || problem.contains("invalid peer certificate: "), "{problem}");
}

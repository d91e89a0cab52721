//! The cluster's authorities, everybody's certificates, and kubeconfig files.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

use crate::files::Files;
use crate::network::Network;

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Certificates below `pki/`, each `<name>.crt` with `<name>.key`.
#[derive(Clone, Debug)]
pub struct Pki {
    files: Files,
}

/// The two roles in which certificates matter to Kubernetes: common name and organisation.
struct Subject<'a>(&'a str, &'a str);

// === impl Pki ===

impl Pki {
    /// Makes all of them. The service accounts' key is `sa.key` and `sa.pub`.
    pub fn create(files: &Files, node: &str, network: &Network) -> anyhow::Result<Self> {
        files.directory("pki")?;
        let pki = Self { files: files.clone() };
        let (ca, front) = (pki.authority("ca")?, pki.authority("front-proxy-ca")?);
        let system_node = format!("system:node:{node}");
        let [address, service] = [network.node, network.api].map(|address| address.to_string());
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", &address, &service];
        pki.issue(&ca, "apiserver", &Subject("kube-apiserver", ""), &names)?;
        pki.issue(&ca, "apiserver-kubelet-client", &Subject("kube-apiserver", "system:masters"), &[])?;
        pki.issue(&front, "front-proxy-client", &Subject("front-proxy-client", ""), &[])?;
        pki.issue(&ca, "admin", &Subject("admin", "system:masters"), &[])?;
        pki.issue(&ca, "controller-manager", &Subject("system:kube-controller-manager", ""), &[])?;
        pki.issue(&ca, "scheduler", &Subject("system:kube-scheduler", ""), &[])?;
        pki.issue(&ca, "node", &Subject(&system_node, "system:nodes"), &[])?;
        pki.issue(&ca, "kubelet-server", &Subject(&system_node, "system:nodes"), &[node, &address])?;
        let key = KeyPair::generate()?;
        files.write("pki/sa.key", key.serialize_pem())?;
        files.write("pki/sa.pub", key.public_key_pem())?;
        Ok(pki)
    }

    /// The certificate of this name.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.files.at(format!("pki/{name}.crt"))
    }

    /// The key of this name.
    pub fn key(&self, name: &str) -> PathBuf {
        self.files.at(format!("pki/{name}.key"))
    }

    /// A kubeconfig with which the owner of certificate `name` reaches the API server.
    pub fn kubeconfig(&self, name: &str, api: u16) -> anyhow::Result<PathBuf> {
        let user = json!({"client-certificate": self.certificate(name), "client-key": self.key(name)});
        self.write_kubeconfig(name, &user, api)
    }

    /// A kubeconfig with which whoever has the token in `token` reaches it.
    pub fn token_kubeconfig(&self, name: &str, token: &Path, api: u16) -> anyhow::Result<PathBuf> {
        self.write_kubeconfig(name, &json!({"tokenFile": token}), api)
    }

    fn write_kubeconfig(&self, name: &str, user: &Value, api: u16) -> anyhow::Result<PathBuf> {
        let server = format!("https://127.0.0.1:{api}");
        // JSON is YAML.
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": self.certificate("ca")}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        self.files.write(format!("{name}.kubeconfig"), config.to_string())
    }

    fn authority(&self, name: &str) -> anyhow::Result<Authority> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, name);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        self.files.write(format!("pki/{name}.crt"), authority.pem())?;
        Ok(authority)
    }

    /// Every certificate serves at the loopback address; clients don't mind.
    fn issue(&self, by: &Authority, name: &str, subject: &Subject<'_>, names: &[&str]) -> anyhow::Result<()> {
        let loopback = Ipv4Addr::LOCALHOST.to_string();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).chain([loopback]).collect();
        let mut params = CertificateParams::new(names)?;
        let Subject(common_name, organisation) = subject;
        params.distinguished_name.push(DnType::CommonName, *common_name);
        if !organisation.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, *organisation);
        }
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, by)?;
        self.files.write(format!("pki/{name}.crt"), certificate.pem())?;
        self.files.write(format!("pki/{name}.key"), key.serialize_pem())?;
        Ok(())
    }
}

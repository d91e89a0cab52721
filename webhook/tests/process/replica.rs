//! One process of the webhook.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use bytes::Bytes;
use divvy_testkit::process::{own_address, resident};
use fake_apiserver::endpoints::pod_ip;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{until, within};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_divvy-webhook");

/// A running replica; killed when dropped. Its log is shown with a test that fails, and must tell of no panic.
pub(crate) struct Replica {
    pub(crate) name: &'static str,
    /// Reviews.
    pub(crate) address: SocketAddr,
    /// Calls of the scheduler.
    pub(crate) extender: SocketAddr,
    /// Queries.
    pub(crate) queries: SocketAddr,
    /// Calls of the front proxy.
    pub(crate) aggregated_api: SocketAddr,
    pages: SocketAddr,
    /// `/config` and `/debug`.
    admin: SocketAddr,
    child: Child,
    log: PathBuf,
}

// === impl Replica ===

impl Replica {
    /// Starts with these keys on top of what every replica of a test has.
    pub(crate) fn start(home: &Path, name: &'static str, keys: &Value) -> Self {
        let ip = own_address();
        let [address, extender, queries, aggregated_api, pages, admin] =
            [8443, 8444, 8445, 8446, 9403, 9404].map(|port| SocketAddr::from((ip, port)));
        let mut all = json!({
            "version": "v1",
            "podName": name,
            "podIp": pod_ip(ip),
            "namespace": "divvy-system",
            "listenAddress": address,
            "metricsAddress": pages,
            "adminAddress": admin,
            "kubeconfig": home.join("kubeconfig"),
            "shutdownDelay": "1s",
            "scheduling": "extender",
            "logLevel": "info,divvy_webhook=debug",
        });
        all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let (config, log) = (home.join(format!("{name}.yaml")), home.join(format!("{name}.log")));
        std::fs::write(&config, all.to_string()).unwrap();
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("--config-file").arg(config).env_clear().env("NO_COLOR", "1").env("RUST_BACKTRACE", "1");
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output).kill_on_drop(true);
        let child = command.spawn().unwrap();
        Self { name, address, extender, queries, aggregated_api, pages, admin, child, log }
    }

    /// Status and text of a page of `metricsAddress`; nothing while nobody listens.
    pub(crate) async fn page(&self, path: &str) -> Option<(u16, String)> {
        page(self.pages, path).await
    }

    /// Status and text of a page of `adminAddress`; nothing while nobody listens.
    pub(crate) async fn admin_page(&self, path: &str) -> Option<(u16, String)> {
        page(self.admin, path).await
    }

    /// The same, for a task of its own.
    pub(crate) fn admin_page_later(
        &self,
        path: &'static str,
    ) -> impl Future<Output = Option<(u16, String)>> + Send + use<> {
        page(self.admin, path)
    }

    pub(crate) async fn ready(&self) {
        let ok = async || self.page("readyz").await.filter(|(code, _)| *code == 200);
        until(&format!("{} is ready", self.name), ok).await;
    }

    /// The sum of a metric over the label sets that contain all of `labels`.
    pub(crate) async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let (_, text) = self.page("metrics").await.unwrap();
        let of_name = text.lines().filter_map(|line| line.strip_prefix(name));
        let values = of_name.filter(|rest| rest.starts_with([' ', '{'])).filter_map(|rest| rest.rsplit_once(' '));
        let values = values.filter(|(of, _)| labels.iter().all(|label| of.contains(label)));
        values.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }

    pub(crate) async fn counts(&self, name: &str, labels: &[&str], wanted: f64) {
        let what = format!("{} counts {wanted} of {name}{labels:?}", self.name);
        until(&what, async || (self.metric(name, labels).await >= wanted).then_some(())).await;
    }

    /// Leads, and knows the reservations of the last leader.
    pub(crate) async fn leads(&self) {
        self.says("serving extender calls").await;
    }

    pub(crate) async fn says(&self, text: &str) {
        let said = async || self.log().contains(text).then_some(());
        until(&format!("{} says {text:?}", self.name), said).await;
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// `TERM` and the like.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().await.unwrap().success());
    }

    /// Its resident memory in MiB, now and at most.
    pub(crate) fn resident(&self) -> [u64; 2] {
        resident(self.child.id().expect("it runs")).unwrap()
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        within(&format!("{} ends", self.name), self.child.wait()).await.unwrap()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.name, self.log());
        } else {
            assert!(!self.log().contains("panicked"), "{}", self.log());
        }
    }
}

async fn page(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.get(format!("http://{address}/{path}").parse().unwrap()).await.ok()?;
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    Some((code, String::from_utf8_lossy(&body).into_owned()))
}

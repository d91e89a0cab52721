//! The way to the API server: kubectl's flags, and refusals in kubectl's words.

mod port_forward;

use std::error::Error;
use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use divvy_api::gpunode::GpuNodeReport;
use futures::{AsyncBufRead as _, AsyncBufReadExt as _};
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, ObjectList};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::{Request, Status};
use kube::runtime::watcher;
use kube::{Api, Client, Config, Resource as _};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};

use self::port_forward::Failure;

/// Objects in one answer, as many as kubectl asks for: the API server shouldn't have to hold all of a large cluster.
const PAGE: u32 = 500;

/// Flags that every subcommand has which asks a cluster; named as kubectl's.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Path to the kubeconfig file [default: as kubectl, $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig context to use
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Kubeconfig cluster to use
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Kubeconfig user to use
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// How long to wait for one answer of the server: 1s, 2m, 3h, or a number of seconds; 0 is no limit
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration)]
    request_timeout: Duration,
}

/// Connection to a cluster.
pub struct Cluster {
    client: Client,
    /// URL of the API server, for messages.
    url: String,
    /// Name of the kubeconfig's context; none in a pod.
    context: Option<String>,
    /// Zero is none.
    timeout: Duration,
}

/// Refusals and errors of the API server.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The server has no such object.
    #[error("Error from server (NotFound): {0}")]
    NotFound(String),
    /// The server doesn't know this kind of object.
    #[error("error: the server doesn't have this kind of resource")]
    UnknownKind,
    /// The user lacks permission.
    #[error("Error from server (Forbidden): {0}")]
    Forbidden(String),
    /// The server doesn't know the user.
    #[error("error: You must be logged in to the server (Unauthorized)")]
    Unauthorized,
    /// The API server refused for another reason.
    #[error("Error from server ({reason}): {message}")]
    Other {
        /// One word for it.
        reason: String,
        /// The server's own words.
        message: String,
    },
    /// The connection to a port of a pod failed beyond the API server.
    #[error("error: port {port} of pod {pod} can't be reached: {why}")]
    NotForwarded {
        /// The pod.
        pod: String,
        /// The port in the pod.
        port: u16,
        /// The kubelet's words.
        why: String,
    },
    /// What is at a port of a pod doesn't answer as it should.
    #[error("error: port {port} of pod {pod} {why}")]
    NoAnswer {
        /// The pod.
        pod: String,
        /// The port in the pod.
        port: u16,
        /// What it does instead.
        why: String,
    },
    /// The API server doesn't answer.
    #[error("Unable to connect to the server {url}: {why}")]
    Unreachable {
        /// Where it should be.
        url: String,
        /// What went wrong on the way.
        why: String,
    },
}

/// Whether this may be part of a path of the API server: a name that an API server has let in is.
pub(crate) fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    !text.is_empty() && text.chars().all(is_plain) && !text.split('.').any(str::is_empty)
}

/// A duration as kubectl reads it: with units, or in seconds without.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs);
    seconds.or_else(|_| humantime::parse_duration(text)).map_err(|error| format!("{error}: expected 1s, 2m or 3h"))
}

// === impl ClusterArgs ===

impl ClusterArgs {
    /// The flags of a subcommand that has a `--cluster` of its own.
    pub fn of_context(kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        Self { kubeconfig, context, cluster: None, user: None, request_timeout: Duration::ZERO }
    }

    /// Reads the kubeconfig; the server isn't asked anything yet.
    pub async fn connect(self) -> anyhow::Result<Cluster> {
        let timeout = self.request_timeout;
        let (config, context) = self.config().await?;
        let url = config.cluster_url.to_string();
        let client = Client::try_from(config).map_err(|error| anyhow!("error: {}", causes(&error)))?;
        Ok(Cluster { client, url: url.trim_end_matches('/').to_owned(), context, timeout })
    }

    /// The configuration, and the name of the context that it is of.
    async fn config(self) -> anyhow::Result<(Config, Option<String>)> {
        let Self { kubeconfig, context, cluster, user, request_timeout: _ } = self;
        let is_default = kubeconfig.is_none() && context.is_none() && cluster.is_none() && user.is_none();
        let kubeconfig = match kubeconfig.map_or_else(Kubeconfig::read, Kubeconfig::read_from) {
            Ok(kubeconfig) => kubeconfig,
            Err(refused) => {
                // In a pod its own account does, as for kubectl.
                let own = Config::incluster().ok().filter(|_| is_default && is_missing(&refused));
                return own.map(|own| (own, None)).ok_or_else(|| explain(refused));
            }
        };
        if let Some(user) = user.as_ref().filter(|user| kubeconfig.auth_infos.iter().all(|known| known.name != **user))
        {
            bail!("error: auth info {user:?} does not exist");
        }
        let name = context.clone().or_else(|| kubeconfig.current_context.clone());
        let options = KubeConfigOptions { context, cluster, user };
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map(|config| (config, name)).map_err(explain)
    }
}

fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

fn explain(error: KubeconfigError) -> anyhow::Error {
    let remedy = "name one with --kubeconfig or in KUBECONFIG";
    match error {
        KubeconfigError::FindPath => anyhow!("error: there is no kubeconfig: {remedy}"),
        KubeconfigError::ReadConfig(error, path) => anyhow!("error: kubeconfig {}: {error}: {remedy}", path.display()),
        KubeconfigError::CurrentContextNotSet => {
            anyhow!("error: the kubeconfig has no current context: choose one with --context")
        }
        KubeconfigError::LoadContext(name) => anyhow!("error: context {name:?} does not exist"),
        KubeconfigError::LoadClusterOfContext(name) => anyhow!("error: cluster {name:?} does not exist"),
        // The lines that follow draw the place.
        other => anyhow!("error: kubeconfig: {}", other.to_string().lines().next().unwrap_or_default()),
    }
}

// === impl Cluster ===

impl Cluster {
    /// URL of the API server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Name of the kubeconfig's context, if it is by one.
    pub fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// Asks for one `GpuNode`: whether Divvy is there, and may be read.
    pub async fn probe_gpu_nodes(&self) -> anyhow::Result<()> {
        let one = ListParams::default().limit(1);
        let request = Request::new(self.gpu_nodes().resource_url()).list(&one).map_err(kube::Error::BuildRequest);
        let list = self.ask(async { self.client.request::<serde_json::Value>(request?).await }).await;
        list.map(drop).map_err(Refusal::of_gpu_nodes)
    }

    /// Why a watch failed.
    pub fn watch_refusal(&self, error: watcher::Error) -> Refusal {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => self.refusal(error),
            watcher::Error::WatchError(status) => (*status).into(),
            watcher::Error::NoResourceVersion => self.unreachable("its list has no resource version".to_owned()),
        }
    }

    /// Waits so long for an answer, unless `--request-timeout` says how long.
    #[must_use]
    pub fn patient(mut self, limit: Duration) -> Self {
        if self.timeout.is_zero() {
            self.timeout = limit;
        }
        self
    }

    /// The client, to make an [`Api`] of.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The `GpuNode`s, of any version of divvy-node.
    pub fn gpu_nodes(&self) -> Api<GpuNodeReport> {
        Api::all(self.client())
    }

    /// One object.
    pub async fn get<K>(&self, api: &Api<K>, name: &str) -> Result<K, Refusal>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        self.ask(api.get(name)).await
    }

    /// One object, if it exists.
    pub async fn find<K>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, Refusal>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        self.get(api, name).await.map_or_else(Refusal::unless_missing, |object| Ok(Some(object)))
    }

    /// What is at a path, as JSON, if there is something.
    pub async fn find_at<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Refusal> {
        self.read(path).await.map_or_else(Refusal::unless_missing, |object| Ok(Some(object)))
    }

    /// What is at a path, as JSON.
    pub async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
        self.ask(async { self.client.request(request?).await }).await
    }

    /// What is at a path, as it is.
    pub async fn text(&self, path: &str) -> Result<String, Refusal> {
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
        self.ask(async { self.client.request_text(request?).await }).await
    }

    /// The end of the text at a path, at most so many bytes of it in whole lines; and how many bytes are before it.
    pub async fn end_of(&self, path: &str, most: usize) -> Result<(Vec<u8>, usize), Refusal> {
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
        self.ask(async {
            let mut body = pin!(self.client.request_stream(request?).await?);
            let mut end = Vec::new();
            let mut before = 0;
            loop {
                let part = body.fill_buf().await.map_err(kube::Error::ReadEvents)?;
                if part.is_empty() {
                    break;
                }
                let length = part.len();
                end.extend_from_slice(part);
                body.as_mut().consume(length);
                // Seldom, as the rest has to be moved.
                if end.len() > 2 * most {
                    let excess = end.len() - most;
                    before += end.drain(..excess).len();
                }
            }
            let mut excess = end.len().saturating_sub(most);
            if before + excess > 0 {
                excess += end[excess..].iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            }
            before += end.drain(..excess).len();
            Ok((end, before))
        })
        .await
    }

    /// The body of a page of a pod's HTTP server on its loopback interface, which the API server and the kubelet forward a
    /// connection to, as for `kubectl port-forward`.
    pub async fn get_by_port_forward(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
        path: &str,
    ) -> Result<Bytes, Refusal> {
        self.in_time(async {
            let pods = Api::<Pod>::namespaced(self.client(), namespace);
            port_forward::get(|| self.forward(&pods, pod, port), path).await?.map_err(|failure| match failure {
                Failure::Connection(why) => Refusal::NotForwarded { pod: pod.to_owned(), port, why },
                Failure::Answer(why) => Refusal::NoAnswer { pod: pod.to_owned(), port, why },
            })
        })
        .await
    }

    /// A connection to a port of a pod, and what tells in words why it was refused.
    async fn forward(
        &self,
        pods: &Api<Pod>,
        pod: &str,
        port: u16,
    ) -> Result<(impl AsyncRead + AsyncWrite + Unpin + use<>, impl Future<Output = Option<String>> + use<>), Refusal>
    {
        let mut forwarded = pods.portforward(pod, &[port]).await.map_err(|error| match self.refusal(error) {
            // In the kubelet's words, which name nothing.
            Refusal::UnknownKind => Refusal::NotFound(format!("pods {pod:?} not found")),
            refusal => refusal,
        })?;
        let ends = forwarded.take_stream(port).zip(forwarded.take_error(port));
        Ok(ends.expect("the port that was asked for"))
    }

    /// All objects that have the labels that `selector` asks for, in the order of their names.
    pub async fn list<K>(&self, api: &Api<K>, selector: Option<&str>) -> Result<Vec<K>, Refusal>
    where
        K: kube::Resource + Clone + DeserializeOwned,
    {
        let params = ListParams { label_selector: selector.map(str::to_owned), ..ListParams::default() };
        self.list_at(api.resource_url(), params).await
    }

    /// All objects of a collection's path, decoded as no more than what is read of them.
    pub async fn list_at<T>(&self, path: &str, params: ListParams) -> Result<Vec<T>, Refusal>
    where
        T: Clone + DeserializeOwned,
    {
        self.list_parts(path, params, |object: T| object).await
    }

    /// All pods of a namespace, or of the cluster.
    pub async fn pods<T>(&self, namespace: Option<&str>, params: ListParams) -> Result<Vec<T>, Refusal>
    where
        T: Clone + DeserializeOwned,
    {
        self.list_at(&Pod::url_path(&(), namespace), params).await
    }

    /// What `part` makes of each object of a collection's path. No more than a page of whole objects is held at a time.
    pub async fn list_parts<T, P>(
        &self,
        path: &str,
        params: ListParams,
        part: impl Fn(T) -> P,
    ) -> Result<Vec<P>, Refusal>
    where
        T: Clone + DeserializeOwned,
    {
        let mut params = params.limit(PAGE);
        let mut all = Vec::new();
        loop {
            let request = Request::new(path).list(&params).map_err(kube::Error::BuildRequest);
            let page: ObjectList<T> = self.ask(async { self.client.request(request?).await }).await?;
            all.extend(page.items.into_iter().map(&part));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(all),
            }
        }
    }

    async fn ask<T>(&self, question: impl Future<Output = kube::Result<T>>) -> Result<T, Refusal> {
        self.in_time(async { question.await.map_err(|error| self.refusal(error)) }).await
    }

    /// Ends a question after `--request-timeout`.
    async fn in_time<T>(&self, question: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        let limit = if self.timeout.is_zero() { Duration::MAX } else { self.timeout };
        let late = || self.unreachable(format!("no answer within {}", humantime::format_duration(limit)));
        tokio::time::timeout(limit, question).await.unwrap_or_else(|_elapsed| Err(late()))
    }

    fn refusal(&self, error: kube::Error) -> Refusal {
        match error {
            kube::Error::Api(status) => (*status).into(),
            error => self.unreachable(causes(&error)),
        }
    }

    fn unreachable(&self, why: String) -> Refusal {
        Refusal::Unreachable { url: self.url.clone(), why }
    }
}

/// An error's causes in one line. The outermost text of [`kube::Error`] repeats them with the name of a Rust type.
fn causes(error: &kube::Error) -> String {
    error.source().map_or_else(|| error.to_string(), chain)
}

/// An error with its causes, in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let errors = std::iter::successors(Some(error), |error| (*error).source());
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

// === impl Refusal ===

impl Refusal {
    /// Nothing, if that is all that is wrong.
    fn unless_missing<T>(self) -> Result<Option<T>, Self> {
        match self {
            Self::NotFound(_) | Self::UnknownKind => Ok(None),
            refused => Err(refused),
        }
    }

    /// The refusal of `GpuNode`s, with what to do about the two that a cluster gives which works.
    pub fn of_gpu_nodes(self) -> anyhow::Error {
        match self {
            Self::UnknownKind => anyhow!(
                "error: Divvy isn't installed in this cluster, or not this version: it serves no gpunodes of \
                 divvy.dev/v1alpha1. Apply deploy/manifests of Divvy, or choose another cluster with --context"
            ),
            Self::Forbidden(message) => anyhow!(
                "Error from server (Forbidden): {message}. Ask for a ClusterRole with the verbs get and list on gpunodes \
                 of the API group divvy.dev"
            ),
            other => other.into(),
        }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let named = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
        match status.code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden(status.message),
            404 if named => Self::NotFound(status.message),
            404 => Self::UnknownKind,
            _ => Self::Other { reason: status.reason, message: status.message },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_in_kubectl() {
        let read = |text: &str| duration(text).map(|duration| duration.as_millis());
        assert_eq!([read("0"), read("5"), read("1m"), read("250ms")], [Ok(0), Ok(5000), Ok(60_000), Ok(250)]);
        assert!(read("-1").is_err() && read("soon").is_err());
    }

    #[test]
    fn names_that_lead_elsewhere_are_none() {
        assert!(is_name("divvy-node-x7k2p") && is_name("node-1.example.com"));
        for text in ["", "..", "a/../b", "a..b", "a?b", "a%2fb", "A", "../secrets/x", ".a"] {
            assert!(!is_name(text), "{text}");
        }
    }
}

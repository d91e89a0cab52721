//! An API-server stand-in: HTTPS, tokens and the Kubernetes API, good enough for kube-rs and a stock kubectl.
//!
//! ```text
//! HTTPS ──▶ serve ──▶ dispatch ──▶ write, patch, remove ──▶ store ──changes──▶ watch ──▶ client
//!             ▲          │  └─ list, table      │             ▲
//!             │          └─ discovery, reviews  │             └── tests and the playground, in process
//!             └────────── admission ◀──held─────┘
//!                             └──HTTPS──▶ webhooks
//! ```
//!
//! All kinds are rows of one table (`resource`); CustomResourceDefinitions add more the moment they are created. State
//! is one plain, synchronous store behind one lock.
//!
//! What it doesn't do, and a real server does: anybody with a token may do everything, unless `guard` was called (access
//! reviews are answered from the stored roles and bindings in any case); admission policies are stored and not run;
//! schemas of custom resources don't validate; a definition is served at once; objects are validated no further than
//! clients of this project can notice; JSON is the only encoding (kubectl's generators, such as `kubectl create configmap`, send protobuf
//! and are refused; `create -f` and `apply` send JSON); ports of pods are forwarded over WebSocket alone. No controllers run but the garbage collector and the one of
//! namespaces. How calls of webhooks differ, `admission` says.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use hyper::StatusCode;
use hyper::body::Bytes;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

mod admission;
mod cells;
mod columns;
mod conditions;
mod container_log;
mod core;
mod discovery;
mod dispatch;
pub mod endpoints;
mod feed;
mod fields;
pub mod go_json;
pub mod https;
mod kinds;
mod log;
pub mod object;
mod patch;
pub mod pki;
mod port_forward;
mod prune;
pub mod quantity;
mod rbac;
mod remove;
mod resource;
mod reviews;
mod route;
mod scale;
mod selector;
mod serve;
mod shape;
mod status;
mod store;
mod strategic;
mod table;
mod target;
mod users;
mod view;
mod watch;
mod write;

pub use feed::{Feed, News};
pub use log::Request;
pub use status::Refusal;
pub use users::User;
pub use view::View;

use self::core::{Core, Fault, Harm, State};
use self::remove::DeleteOptions;
use self::serve::Server;
use self::status::Answer;
use self::target::Target;
use self::write::Writer;

/// Namespaces of every new cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// A running API server; stops when dropped.
pub struct ApiServer {
    core: Arc<Core>,
    address: SocketAddr,
    /// PEM.
    ca: String,
    _end: DropGuard,
}

// === impl ApiServer ===

impl ApiServer {
    /// Starts on a free port of the loopback interface; lets in who presents one of the tokens, each given with the name
    /// of its user.
    pub async fn start(tokens: &[(&str, &str)]) -> anyhow::Result<Self> {
        let (ca, tls) = tokio::task::spawn_blocking(|| {
            let ca = pki::authority("cluster-ca")?;
            let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
            anyhow::Ok((ca.pem(), pki::signed(&ca, "kube-apiserver", &names)?))
        })
        .await?
        .context("making the API server's certificate")?;
        let mut state = State::default();
        state.users.extend(tokens.iter().map(|(token, user)| ((*token).to_owned(), User::from(*user))));
        let core = Arc::new(Core::new(state));
        let server = Arc::new(Server::bind(tls, Arc::clone(&core)).context("binding the API server")?);
        let (address, listener) = (server.address, server.listen().context("listening as the API server")?);
        let end = CancellationToken::new();
        tokio::spawn(server.serve(listener, end.clone()));
        let started = Self { core, address, ca, _end: end.drop_guard() };
        for name in NAMESPACES {
            started.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))?;
        }
        Ok(started)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The certificate of the cluster's authority, PEM.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// A kubeconfig for whoever has this token. It is JSON, which is YAML.
    pub fn kubeconfig(&self, token: &str) -> String {
        let ca = ByteString(self.ca.clone().into_bytes());
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "playground", "cluster": { "server": self.url(), "certificate-authority-data": ca } }],
            "users": [{ "name": "user", "user": { "token": token } }],
            "contexts": [{ "name": "playground", "context": { "cluster": "playground", "user": "user" } }],
            "current-context": "playground",
        });
        format!("{config:#}\n")
    }

    /// Lets in who presents this token, from now on.
    pub fn allow(&self, token: &str, user: impl Into<User>) {
        self.core.update(|state| state.users.insert(token.to_owned(), user.into()));
    }

    /// Lets everybody do only what the stored roles and bindings allow, from now on. `system:masters` may do everything.
    pub fn guard(&self) {
        self.core.update(|state| state.guarded = true);
    }

    /// Answers 401 to this token, from now on.
    pub fn refuse(&self, token: &str) {
        self.core.update(|state| state.users.remove(token));
    }

    /// Where webhooks of this service are called from now on; each call goes to any of the addresses.
    pub fn resolve(&self, namespace: &str, service: &str, addresses: &[SocketAddr]) {
        let key = (namespace.to_owned(), service.to_owned());
        self.core.update(|state| state.services.insert(key, addresses.to_vec()));
    }

    /// Closes the port and cuts all connections.
    pub async fn go_away(&self) {
        self.core.listen(false).await;
    }

    /// Listens again, on the same port and with the same state.
    pub async fn come_back(&self) {
        self.core.listen(true).await;
    }

    /// Ends all watches, as a load balancer or a restart does.
    pub fn drop_watches(&self) {
        self.core.hang_ups.send_modify(|count| *count += 1);
    }

    /// Forgets all changes so far: a watch or a page that goes on from before now is answered 410.
    pub fn expire(&self) {
        self.core.update(|state| state.store.forget());
    }

    /// Fails the next `times` requests with this verb (any, if it is empty) whose path contains `path`.
    pub fn fail(&self, verb: &str, path: &str, times: usize, code: StatusCode) {
        self.harm(verb, path, times, Harm::Refused(code));
    }

    /// Leaves the next `times` requests like that alone: they are neither carried out nor answered.
    pub fn swallow(&self, verb: &str, path: &str, times: usize) {
        self.harm(verb, path, times, Harm::Swallowed);
    }

    /// Carries the next `times` requests like that out and never answers.
    pub fn lose_answers(&self, verb: &str, path: &str, times: usize) {
        self.harm(verb, path, times, Harm::Unanswered);
    }

    /// Carries the next `times` requests like that out at once and answers at [`Self::answer_late`].
    pub fn be_late(&self, verb: &str, path: &str, times: usize) {
        self.core.prompt.send_replace(false);
        self.harm(verb, path, times, Harm::Late);
    }

    /// Gives the answers that are late.
    pub fn answer_late(&self) {
        self.core.prompt.send_replace(true);
    }

    /// Writes what a container has logged, or had logged before its last start.
    pub fn write_log(&self, of: [&str; 3], previous: bool, text: impl Into<Bytes>) {
        self.core.update(|state| state.logs.write(of, previous, text.into()));
    }

    fn harm(&self, verb: &str, path: &str, left: usize, harm: Harm) {
        let fault = Fault { verb: verb.to_owned(), path: path.to_owned(), harm, left };
        self.core.update(|state| state.faults.push(fault));
    }

    /// Creates an object, in its namespace or in `default`, past tokens, faults and webhooks.
    pub fn create(&self, object: &Value) -> Result<Value, Refusal> {
        let target = self.core.read(|state| view::target_of(state, object));
        self.write(target, |state, target| write::create(&mut state.store, target, object, &writer()))
    }

    /// Changes an object as a whole, its status included, as no client can.
    pub fn edit(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Value, Refusal> {
        let target = self.core.read(|state| view::target(state, kind, namespace, name));
        self.write(target, |state, target| write::overwrite(&mut state.store, target, change))
    }

    /// Deletes an object, after the grace period that is given in seconds or else its own.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str, grace: Option<i64>) -> Result<Value, Refusal> {
        let options = DeleteOptions { grace, ..DeleteOptions::default() };
        let target = self.core.read(|state| view::target(state, kind, namespace, name));
        self.write(target, |state, target| Ok(remove::delete(&mut state.store, target, &options)?.0))
    }

    /// Binds a pod to a node as a scheduler does, with annotations that come along.
    pub fn bind(&self, namespace: &str, name: &str, node: &str, annotations: &Value) -> Result<Value, Refusal> {
        let binding = json!({ "metadata": { "annotations": annotations }, "target": { "kind": "Node", "name": node } });
        let mut target = self.core.read(|state| view::target(state, "Pod", namespace, name))?;
        "binding".clone_into(&mut target.subresource);
        self.write(Ok(target), |state, target| {
            write::update(&mut state.store, target, &writer(), |pod| kinds::bind(target, pod, &binding))
        })
    }

    /// Drops the object of this UID at once; a namesake stays.
    pub fn remove(&self, kind: &str, namespace: &str, name: &str, uid: &str) -> Result<Value, Refusal> {
        let options = DeleteOptions { grace: Some(0), uid: Some(uid.to_owned()), ..DeleteOptions::default() };
        let target = self.core.read(|state| view::target(state, kind, namespace, name));
        self.write(target, |state, target| Ok(remove::delete(&mut state.store, target, &options)?.0))
    }

    /// Changes of this kind from now on, and every object that is there.
    pub fn feed(&self, kind: &'static str) -> (Feed, Vec<News>) {
        Feed::new(&self.core, kind)
    }

    /// An object; the namespace of what belongs to the cluster is empty.
    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.read(|view| view.get(kind, namespace, name))
    }

    /// All objects of a kind.
    pub fn list(&self, kind: &str) -> Vec<Value> {
        self.read(|view| view.list(kind))
    }

    /// All requests so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.read(|view| view.requests().to_vec())
    }

    /// Looks at everything at one instant. The server is locked meanwhile: `look` must ask nobody but the view.
    pub fn read<T>(&self, look: impl FnOnce(&View<'_>) -> T) -> T {
        self.core.read(|state| look(&View::of(state)))
    }

    /// Waits until `look` finds something in the view alone; has no deadline of its own.
    pub async fn wait_for<T>(&self, mut look: impl FnMut(&View<'_>) -> Option<T>) -> T {
        self.core.wait(|state| look(&View::of(state))).await
    }

    fn write(
        &self,
        target: Answer<Target>,
        write: impl FnOnce(&mut State, &Target) -> Answer<Arc<Value>>,
    ) -> Result<Value, Refusal> {
        let target = target?;
        let written = self.core.update(|state| write(state, &target))?;
        Ok(target.resource.show(&written))
    }
}

/// Who is within this process says himself who owns the fields, if he cares.
fn writer() -> Writer {
    Writer { manager: "playground".to_owned(), dry_run: false, recorded: true }
}

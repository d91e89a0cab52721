//! A stand-in for divvy-node: its pod, and a listener for `/metrics`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::bench::Bench;

/// A running one.
pub(crate) struct Daemon {
    page: watch::Sender<String>,
    asked: Arc<AtomicUsize>,
    task: AbortHandle,
}

/// Lines of a container `main` with a share of GPU-a: 1 GiB, of which it uses `used` bytes, and half of the compute.
pub(crate) fn figures(namespace: &str, pod: &str, used: u64, busy: f64) -> String {
    figures_of(namespace, pod, "GPU-a", used, busy)
}

/// The same, of another GPU.
pub(crate) fn figures_of(namespace: &str, pod: &str, card: &str, used: u64, busy: f64) -> String {
    let labels = format!("namespace=\"{namespace}\",pod=\"{pod}\",container=\"main\",uuid=\"{card}\"");
    format!(
        "divvy_container_memory_limit_bytes{{{labels}}} {}.0\n\
         divvy_container_memory_used_bytes{{{labels}}} {used}.0\n\
         divvy_share_compute_ratio{{{labels}}} 0.5\n\
         divvy_container_busy_seconds_total{{{labels}}} {busy}\n",
        1u64 << 30
    )
}

// === impl Daemon ===

impl Daemon {
    /// A daemon of this node, in whose pod's place it listens.
    pub(crate) async fn start(bench: &Bench, node: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (page, shown) = watch::channel(String::new());
        let asked = Arc::new(AtomicUsize::new(0));
        bench.daemon_pod(node, listener.local_addr().unwrap());
        let say = move |_| shown.borrow().clone();
        let task = tokio::spawn(serve(listener, say, Arc::clone(&asked))).abort_handle();
        Self { page, asked, task }
    }

    /// A listener in the place of many daemons, each at an address of the loopback network of its own, which is told what it is.
    pub(crate) async fn start_many(
        bench: &Bench,
        nodes: usize,
        name: impl Fn(usize) -> String,
        lines: impl Fn(usize) -> String + Clone + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let first = u32::from(Ipv4Addr::new(127, 1, 0, 0));
        for node in 0..nodes {
            let address = Ipv4Addr::from(first + u32::try_from(node).unwrap());
            bench.daemon_pod(&name(node), (address, port).into());
        }
        let say = move |own: IpAddr| {
            let IpAddr::V4(own) = own else { unreachable!("it listens on IPv4") };
            page_of(&lines(usize::try_from(u32::from(own) - first).unwrap()))
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(serve(listener, say, Arc::clone(&asked))).abort_handle();
        Self { page: watch::Sender::default(), asked, task }
    }

    /// Answers with these lines from now on.
    pub(crate) fn say(&self, lines: &str) {
        self.answer(page_of(lines));
    }

    /// Answers with this from now on, whatever it is; nothing: it stays silent.
    pub(crate) fn answer(&self, bytes: String) {
        self.page.send_replace(bytes);
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn page_of(lines: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{lines}# EOF\n")
}

/// Answers with what is to be said at the address that is asked.
async fn serve(
    listener: TcpListener,
    say: impl Fn(IpAddr) -> String + Clone + Send + 'static,
    asked: Arc<AtomicUsize>,
) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let (say, asked) = (say.clone(), Arc::clone(&asked));
        tokio::spawn(async move {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).await.unwrap_or_default();
            assert!(request[..length].starts_with(b"GET /metrics HTTP/1.1\r\n"));
            asked.fetch_add(1, Ordering::Relaxed);
            let answer = say(stream.local_addr().unwrap().ip());
            if answer.is_empty() {
                std::future::pending::<()>().await;
            }
            drop(stream.write_all(answer.as_bytes()).await);
        });
    }
}

// === impl Bench ===

impl Bench {
    fn daemon_pod(&self, node: &str, address: SocketAddr) {
        let name = format!("divvy-node-{node}");
        let port = json!({ "name": "http", "containerPort": address.port() });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "divvy-system", "labels": { "app.kubernetes.io/name": "divvy-node" } },
            "spec": { "nodeName": node, "containers": [{ "name": "divvy-node", "image": "i", "ports": [port] }] },
        });
        self.server.create(&pod).unwrap();
        let ip = address.ip().to_string();
        let change = |pod: &mut serde_json::Value| pod["status"] = json!({ "phase": "Running", "podIP": ip });
        self.server.edit("Pod", "divvy-system", &name, change).unwrap();
    }
}

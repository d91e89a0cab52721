//! What the pods of Divvy answer and have logged.

use divvy_api::installation::{ADMIN_PORT, DAEMON, DAEMON_METRICS_PORT, WEBHOOK, WEBHOOK_METRICS_PORT};

use super::archive::Part;
use super::objects::Pod;
use crate::cluster::{Cluster, Refusal, is_name};

/// Pages of the admin listener, with the file of each.
const ADMIN: [(&str, &str); 4] = [
    ("/config", "config.yaml"),
    ("/debug/log", "log-filter.txt"),
    ("/debug/threads", "threads.json"),
    ("/debug/state", "state.json"),
];

/// The ports of a program and the pages there; nothing where it serves none.
fn pages(program: &str) -> Vec<(u16, &'static str, &'static str)> {
    let metrics = match program {
        DAEMON => DAEMON_METRICS_PORT,
        WEBHOOK => WEBHOOK_METRICS_PORT,
        _ => return Vec::new(),
    };
    let admin = ADMIN.into_iter().map(|(page, file)| (ADMIN_PORT, page, file));
    [(metrics, "/metrics", "metrics.txt"), (metrics, "/readyz", "readyz.txt")].into_iter().chain(admin).collect()
}

/// Asks a pod for its pages and reads its logs, at most so many bytes from the end of each.
pub(super) async fn ask(cluster: &Cluster, namespace: &str, pod: &Pod, most: usize) -> Vec<Part> {
    let folder = |file: &str| ["pods", &pod.name, file].map(str::to_owned).to_vec();
    if !is_name(&pod.name) {
        let why = "the pod isn't asked, because its name isn't one".to_owned();
        return vec![Part { path: folder("all"), content: Err(why), note: None }];
    }
    let mut parts = Vec::new();
    // A program that hangs would otherwise be waited for once for every page.
    let mut silent = None;
    for (port, page, file) in pages(&pod.program) {
        let content = match &silent {
            Some(page) => Err(format!("not asked, as it didn't answer {page}")),
            None => cluster.get_by_port_forward(namespace, &pod.name, port, page).await.map_err(|refused| {
                if matches!(refused, Refusal::Unreachable { .. }) {
                    silent = Some(page);
                }
                refused.to_string()
            }),
        };
        parts.push(Part { path: folder(file), content: content.map(Vec::from), note: None });
    }
    for (container, restarted) in &pod.containers {
        let runs = if *restarted { &[false, true][..] } else { &[false] };
        for previous in runs {
            let file = format!("{container}{}.log", if *previous { "-previous" } else { "" });
            parts.push(log(cluster, namespace, pod, container, *previous, most, folder(&file)).await);
        }
    }
    parts
}

async fn log(
    cluster: &Cluster,
    namespace: &str,
    pod: &Pod,
    container: &str,
    previous: bool,
    most: usize,
    path: Vec<String>,
) -> Part {
    if !is_name(container) {
        let why = "not read, because the container's name isn't one".to_owned();
        return Part { path, content: Err(why), note: None };
    }
    let name = &pod.name;
    let request = format!("/api/v1/namespaces/{namespace}/pods/{name}/log?container={container}&previous={previous}");
    match cluster.end_of(&request, most).await {
        Ok((text, 0)) => Part { path, content: Ok(text), note: None },
        Ok((text, before)) => Part { path, content: Ok(text), note: Some(format!("without {before} bytes before")) },
        Err(refused) => Part { path, content: Err(refused.to_string()), note: None },
    }
}

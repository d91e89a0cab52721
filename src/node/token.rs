//! The daemon's token, where neither the API server nor the kubelet accepts it.
//!
//! A ServiceAccount that is deleted and made again, as GitOps tools do, is another one: tokens of the first are refused from then
//! on. The kubelet keeps a pod's token until 80 % of its time are over, up to 48 minutes of an hour, under the pod's UID, and
//! asks for a new one only for another pod (`GetServiceAccountToken`, `keyFunc` in `pkg/kubelet/token/token_manager.go`,
//! 1.36; a restart of the kubelet empties its cache). A container that restarts has the same token: the daemon ends so that
//! the pod shows what is wrong, and a new pod mends it.

use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use divvy_runtime::api_server::Requests;
use serde::Deserialize;

/// Time for which every answer of the API server must have been 401. The client reads its file once a minute, so that a
/// token that was renewed may be refused for as long.
const PATIENCE: Duration = Duration::from_secs(75);
/// Interval between looks.
const INTERVAL: Duration = Duration::from_secs(5);

/// Claims that name the token's holder.
#[derive(Deserialize)]
struct Claims {
    /// `system:serviceaccount:<namespace>:<name>` of a ServiceAccount's.
    sub: String,
    #[serde(rename = "kubernetes.io", default)]
    kubernetes: Kubernetes,
}

#[derive(Default, Deserialize)]
struct Kubernetes {
    pod: Option<BoundPod>,
}

/// The pod that the token ends with.
#[derive(Deserialize)]
struct BoundPod {
    name: String,
}

/// Returns, with the reason and the remedy, once the API server has accepted no token for more than a minute.
pub async fn rejected(requests: Option<Requests>, token_file: &Path) -> anyhow::Error {
    let Some(requests) = requests else { return std::future::pending().await };
    loop {
        tokio::time::sleep(INTERVAL).await;
        if let Some(lasted) = requests.unauthorized().filter(|lasted| *lasted >= PATIENCE) {
            let address = requests.address();
            let seconds = lasted.as_secs();
            return anyhow!(
                "API server {address} has answered 401 Unauthorized for {seconds}s: {}",
                remedy(token_file)
            );
        }
    }
}

/// Whose token it is that isn't accepted, and what to do.
pub fn remedy(token_file: &Path) -> String {
    let token = std::fs::read_to_string(token_file).unwrap_or_default();
    let claims = claims(&token);
    let account = claims.as_ref().and_then(|claims| claims.sub.strip_prefix("system:serviceaccount:")?.split_once(':'));
    let Some((namespace, name)) = account else {
        return format!("it doesn't accept the token in {}: replace it", token_file.display());
    };
    let pod = claims.as_ref().and_then(|claims| claims.kubernetes.pod.as_ref());
    let pod = pod.map_or("POD", |pod| &pod.name);
    format!(
        "it doesn't accept the token of ServiceAccount {namespace}/{name}, which may have been deleted and made again; a restart \
         of the container doesn't renew the token, a new pod has another one: kubectl -n {namespace} delete pod {pod}"
    )
}

/// Claims of a JSON Web Token, unverified.
fn claims(token: &str) -> Option<Claims> {
    let payload = token.trim().split('.').nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_names_service_account_and_pod_or_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("token");
        let said = |token: &str| {
            std::fs::write(&file, token).expect("written");
            remedy(&file)
        };
        let token = |claims: &str| format!("e30.{}.c2ln\n", URL_SAFE_NO_PAD.encode(claims));
        let subject = r#""sub":"system:serviceaccount:divvy-system:divvy-node""#;
        let bound =
            said(&token(&format!(r#"{{{subject},"kubernetes.io":{{"pod":{{"name":"divvy-node-x7","uid":"u"}}}}}}"#)));
        assert!(bound.contains("ServiceAccount divvy-system/divvy-node,"), "{bound}");
        assert!(bound.ends_with("kubectl -n divvy-system delete pod divvy-node-x7"), "{bound}");
        assert!(said(&token(&format!("{{{subject}}}"))).ends_with("delete pod POD"));
        for token in ["opaque", "a.b.c", "", &token(r#"{"sub":"admin"}"#)] {
            assert_eq!(said(token), format!("it doesn't accept the token in {}: replace it", file.display()));
        }
    }
}

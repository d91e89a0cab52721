//! `caBundle` in our own webhook configurations: the API server believes the authorities that sign what we show.
//!
//! Applying the manifests again may empty it, and GPU pods are refused until it is filled: so both configurations are
//! followed, and mended at once. A patch tests the name of each webhook that it touches; if the list has changed meanwhile it
//! is refused as a whole, and the watch shows the list as it is.

use std::time::Duration;

use divvy_runtime::api_server::{ApiServer, Requests, watch_object, within_deadline};
use divvy_runtime::logging::WarnOnce;
use futures::StreamExt as _;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::Api;
use kube::api::{self, ApiResource, DynamicObject, PatchParams};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Identity;

/// A patch that failed is tried again after so long.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps the bundle of the Mutating- and the ValidatingWebhookConfiguration of this name what `identity` says, until
/// `stop`.
pub async fn keep_bundle(api_server: ApiServer, name: String, identity: Identity, stop: CancellationToken) {
    let ApiServer { client, requests } = api_server;
    let keep = |resource: ApiResource| {
        let api = Api::all_with(client.clone(), &resource);
        Box::pin(keep_one(api, resource, &name, &identity, requests.clone()))
    };
    let both = futures::future::join(
        keep(ApiResource::erase::<MutatingWebhookConfiguration>(&())),
        keep(ApiResource::erase::<ValidatingWebhookConfiguration>(&())),
    );
    stop.run_until_cancelled_owned(both).await;
}

async fn keep_one(api: Api<DynamicObject>, resource: ApiResource, name: &str, identity: &Identity, requests: Requests) {
    let ApiResource { kind, plural, .. } = resource;
    let request = format!("patch {plural}/{name}");
    let mut credentials = identity.subscribe();
    let mut changes = std::pin::pin!(watch_object(api.clone(), &plural, name, requests.clone()));
    let (mut seen, mut warning): (Option<DynamicObject>, _) = (None, WarnOnce::default());
    let mut again = None;
    loop {
        tokio::select! {
            Some(now) = changes.next() => {
                if now.is_none() {
                    warning.warn(format!("{kind} {name} doesn't exist, so no pod is reviewed: apply the manifests"));
                }
                seen = now;
            }
            Ok(()) = credentials.changed() => {}
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
        }
        again = None;
        let bundle = credentials.borrow_and_update().as_ref().map(|credentials| credentials.bundle());
        let (Some(object), Some(bundle)) = (&seen, bundle) else { continue };
        let Some(patch) = mend(&object.data["webhooks"], &bundle) else {
            warning.clear();
            continue;
        };
        let patch = api::Patch::Json::<()>(patch);
        match within_deadline(api.patch(name, &PatchParams::default(), &patch)).await {
            Ok(_) => {
                requests.succeeded(&request);
                tracing::info!("{kind} {name}: caBundle updated");
            }
            Err(error) => {
                requests.failed(&request, &error, PAUSE);
                again = Some(Instant::now() + PAUSE);
            }
        }
    }
}

/// What makes all webhooks of a list believe the bundle; `None` if they do.
fn mend(webhooks: &Value, bundle: &str) -> Option<Patch> {
    let at = |index: usize, path: &[&str]| {
        let index = index.to_string();
        PointerBuf::from_tokens(["webhooks", &index].into_iter().chain(path.iter().copied()))
    };
    let webhooks = webhooks.as_array().into_iter().flatten().enumerate();
    let wrong = webhooks.filter(|(_, webhook)| webhook["clientConfig"]["caBundle"] != bundle);
    let operations = wrong.flat_map(|(index, webhook)| {
        let name = TestOperation { path: at(index, &["name"]), value: webhook["name"].clone() };
        let bundle = AddOperation { path: at(index, &["clientConfig", "caBundle"]), value: bundle.into() };
        [PatchOperation::Test(name), PatchOperation::Add(bundle)]
    });
    let operations: Vec<_> = operations.collect();
    (!operations.is_empty()).then_some(Patch(operations))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ca_bundle_is_patched_by_name_where_it_differs() {
        let hook = |name: &str, client: Value| json!({ "name": name, "clientConfig": client });
        let good = hook("a", json!({ "caBundle": "QQ==", "service": { "name": "s" } }));
        let (emptied, wrong) = (hook("b", json!({})), hook("c", json!({ "caBundle": "Qg==" })));
        assert_eq!(mend(&json!([good]), "QQ=="), None);
        assert_eq!(mend(&Value::Null, "QQ=="), None);
        let patch = mend(&json!([good, emptied, wrong]), "QQ==").expect("something to mend");
        insta::assert_snapshot!(serde_json::to_string(&patch).expect("JSON"), @r#"[{"op":"test","path":"/webhooks/1/name","value":"b"},{"op":"add","path":"/webhooks/1/clientConfig/caBundle","value":"QQ=="},{"op":"test","path":"/webhooks/2/name","value":"c"},{"op":"add","path":"/webhooks/2/clientConfig/caBundle","value":"QQ=="}]"#);
    }
}

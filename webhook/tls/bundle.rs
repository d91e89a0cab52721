//! `caBundle` in the objects that send the API server to us: it believes the authorities that sign what we show.
//!
//! Applying the manifests again may empty it, and calls fail until it is filled: so the objects are followed, and mended at
//! once. A patch tests the name of each webhook, or the Service of the APIService, that it touches; if the object has changed
//! meanwhile it is refused as a whole, and the watch shows the object as it is.

use std::time::Duration;

use divvy_runtime::api_server::{ApiServer, watch_object, within_deadline};
use divvy_runtime::logging::WarnOnce;
use futures::StreamExt as _;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{self, ApiResource, DynamicObject, PatchParams};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Identity, Service};

/// A patch that failed is tried again after so long.
const PAUSE: Duration = Duration::from_secs(1);

/// Objects whose bundle is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bundles {
    /// The Mutating- and the ValidatingWebhookConfiguration of this name.
    Webhooks(String),
    /// The APIService of this name, as long as it names this Service: another system's would be broken by our bundle.
    Api(String, Service),
}

/// Keeps the bundles what `identity` says, until `stop`.
pub async fn keep_bundle(api_server: ApiServer, bundles: Bundles, identity: Identity, stop: CancellationToken) {
    let keep = |resource: ApiResource| Box::pin(keep_one(&api_server, resource, &bundles, &identity));
    let keep = async {
        match &bundles {
            Bundles::Webhooks(_) => {
                let both = futures::future::join(
                    keep(ApiResource::erase::<MutatingWebhookConfiguration>(&())),
                    keep(ApiResource::erase::<ValidatingWebhookConfiguration>(&())),
                );
                both.await;
            }
            Bundles::Api(..) => keep(ApiResource::erase::<APIService>(&())).await,
        }
    };
    stop.run_until_cancelled(keep).await;
}

async fn keep_one(api_server: &ApiServer, resource: ApiResource, bundles: &Bundles, identity: &Identity) {
    let api = Api::<DynamicObject>::all_with(api_server.client.clone(), &resource);
    let requests = &api_server.requests;
    let name = bundles.name();
    let ApiResource { kind, plural, .. } = resource;
    let request = format!("patch {plural}/{name}");
    let mut credentials = identity.subscribe();
    let mut changes = std::pin::pin!(watch_object(api.clone(), &plural, name, requests.clone()));
    let mut seen: Option<DynamicObject> = None;
    let mut warning = WarnOnce::default();
    let mut again = None;
    loop {
        tokio::select! {
            Some(now) = changes.next() => {
                if now.is_none() {
                    let effect = bundles.effect();
                    warning.warn(format!("{kind} {name} doesn't exist, so {effect}: apply the manifests"));
                }
                seen = now;
            }
            Ok(()) = credentials.changed() => {}
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
        }
        again = None;
        let bundle = credentials.borrow_and_update().as_ref().map(|credentials| credentials.bundle());
        let (Some(object), Some(bundle)) = (&seen, bundle) else { continue };
        let Some(patch) = bundles.mend(&object.data, &bundle) else {
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

// === impl Bundles ===

impl Bundles {
    fn name(&self) -> &str {
        match self {
            Self::Webhooks(name) | Self::Api(name, _) => name,
        }
    }

    /// What it means that there is no such object.
    fn effect(&self) -> &'static str {
        match self {
            Self::Webhooks(_) => "no pod is reviewed",
            Self::Api(..) => "its API isn't served",
        }
    }

    /// What makes an object believe the bundle; `None` if it does, or leads elsewhere.
    fn mend(&self, object: &Value, bundle: &str) -> Option<Patch> {
        match self {
            Self::Webhooks(_) => mend(&object["webhooks"], bundle),
            Self::Api(_, service) => mend_api(&object["spec"], service, bundle),
        }
    }
}

/// What makes an APIService believe the bundle; `None` if it does, or leads elsewhere.
fn mend_api(spec: &Value, Service { name, namespace, .. }: &Service, bundle: &str) -> Option<Patch> {
    let leads_here = spec["service"]["name"] == **name && spec["service"]["namespace"] == **namespace;
    if !leads_here || spec["caBundle"] == bundle {
        return None;
    }
    let at = |path: &[&str]| PointerBuf::from_tokens(["spec"].into_iter().chain(path.iter().copied()));
    let test = |field, value: &str| TestOperation { path: at(&["service", field]), value: value.into() };
    let bundle = AddOperation { path: at(&["caBundle"]), value: bundle.into() };
    Some(Patch(vec![
        PatchOperation::Test(test("name", name)),
        PatchOperation::Test(test("namespace", namespace)),
        PatchOperation::Add(bundle),
    ]))
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

    #[test]
    fn api_service_is_patched_only_while_it_leads_here() {
        let service = Service { name: "s".to_owned(), namespace: "n".to_owned(), client: "c" };
        let spec =
            |name: &str, bundle: Value| json!({ "service": { "name": name, "namespace": "n" }, "caBundle": bundle });
        let mended =
            |spec: &Value| mend_api(spec, &service, "QQ==").map(|patch| serde_json::to_string(&patch).expect("JSON"));
        assert_eq!(mended(&spec("s", "QQ==".into())), None);
        assert_eq!(mended(&spec("gpuserver", Value::Null)), None);
        assert_eq!(mended(&Value::Null), None);
        insta::assert_snapshot!(mended(&spec("s", Value::Null)).expect("something to mend"), @r#"[{"op":"test","path":"/spec/service/name","value":"s"},{"op":"test","path":"/spec/service/namespace","value":"n"},{"op":"add","path":"/spec/caBundle","value":"QQ=="}]"#);
    }
}

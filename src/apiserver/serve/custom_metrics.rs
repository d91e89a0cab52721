//! Answers of `custom.metrics.k8s.io/v1beta2`, as `k8s.io/metrics/pkg/apis/custom_metrics/v1beta2` has them and the
//! autoscaler's client (`k8s.io/metrics/pkg/client/custom_metrics`) asks for them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::header;
use axum::response::IntoResponse as _;
use axum::routing::get;
use divvy_runtime::settings::ObjectName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::status::Refusal;
use crate::custom_metrics::metric::Metric;
use crate::custom_metrics::pods::{Selection, Workload};
use crate::custom_metrics::samples::Usage;
use crate::custom_metrics::{CustomMetrics, PodUsage};
use crate::metrics::Metrics;

/// Most questions at a time. The autoscaler asks five (`--concurrent-horizontal-pod-autoscaler-syncs`).
pub const QUESTIONS: usize = 32;
/// Resource of pods, as paths name it.
const PODS: &str = "pods";
const PATH: &str = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/{resource}/{name}/{metric}";

/// Answers kube-apiserver.
#[derive(Clone, Debug)]
pub struct CustomMetricsApi {
    /// The figures.
    pub figures: CustomMetrics,
    /// Places of questions.
    pub questions: Arc<Semaphore>,
    /// Counters.
    pub metrics: Metrics,
}

/// What is asked.
#[derive(Debug)]
struct Question {
    metric: Metric,
    resource: Resource,
    namespace: ObjectName,
    /// None: all objects that the selector accepts.
    name: Option<ObjectName>,
    /// Selector; empty for all.
    labels: String,
}

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resource {
    Pods,
    Workload(Workload),
}

/// What is answered.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MetricValueList {
    kind: &'static str,
    api_version: &'static str,
    metadata: ListMeta,
    items: Vec<MetricValue>,
}

/// Value of a metric for an object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MetricValue {
    described_object: ObjectReference,
    metric: Identifier,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_seconds: Option<u64>,
    /// Quantity.
    value: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectReference {
    kind: &'static str,
    api_version: &'static str,
    namespace: String,
    name: String,
}

#[derive(Debug, Serialize)]
struct Identifier {
    name: &'static str,
    /// Nothing: the metrics have no labels.
    selector: Option<()>,
}

/// Namespace, resource, name and metric of a path.
type Parts = (String, String, String, String);

/// `resources` of the `APIResourceList`: a subresource for each metric of each resource.
pub fn resources() -> Vec<Value> {
    let all = Resource::all();
    let names = all.flat_map(|resource| Metric::ALL.map(|metric| format!("{}/{}", resource.as_str(), metric.as_str())));
    let entry = |name| json!({ "name": name, "singularName": "", "namespaced": true, "kind": "MetricValueList", "verbs": ["get"] });
    names.map(entry).collect()
}

// === impl CustomMetricsApi ===

impl CustomMetricsApi {
    /// The routes, but for discovery.
    pub fn router<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let answer = async move |State(api): State<Self>,
                                 RawQuery(query): RawQuery,
                                 parts: Result<Path<Parts>, PathRejection>| {
            let parts = parts.map(|Path(parts)| parts).map_err(|error| Refusal::bad_request(error.body_text()));
            let question = parts.and_then(|parts| Question::read(parts, &query.unwrap_or_default()));
            let resource = question.as_ref().map_or("unknown", |question| question.resource.as_str());
            let answer = match question {
                Ok(question) => api.answer(question).await,
                Err(refusal) => Err(refusal),
            };
            let response = answer.map_or_else(Refusal::into_response, |list| {
                ([(header::CONTENT_TYPE, "application/json")], list).into_response()
            });
            api.metrics.answered(resource, "get", response.status().as_u16());
            response
        };
        Router::new().route(PATH, get(answer)).with_state(self)
    }

    /// JSON of a list.
    async fn answer(&self, question: Question) -> Result<String, Refusal> {
        let places = Arc::clone(&self.questions);
        let _permit =
            places.try_acquire_owned().map_err(|_none| Refusal::too_many(QUESTIONS, "questions for metrics"))?;
        let items = self.items(&question).await?;
        if let (Some(name), []) = (&question.name, &*items) {
            return Err(not_found(question.metric.as_str(), question.resource.as_str(), name));
        }
        let (kind, api_version) = ("MetricValueList", "custom.metrics.k8s.io/v1beta2");
        let list = MetricValueList { kind, api_version, metadata: ListMeta::default(), items };
        serde_json::to_string(&list).map_err(|error| Refusal::internal(&error))
    }

    async fn items(&self, question: &Question) -> Result<Vec<MetricValue>, Refusal> {
        let Question { metric, resource, namespace, name, labels } = question;
        let object = |[kind, api_version]: [&'static str; 2], name: &str| ObjectReference {
            kind,
            api_version,
            namespace: namespace.to_string(),
            name: name.to_owned(),
        };
        match (resource, name) {
            (Resource::Pods, name) => {
                let by_name = name.as_deref().map(|name| Selection::Name(name.to_owned()));
                let selection = by_name.unwrap_or_else(|| Selection::Labels(labels.clone()));
                let pods = self.figures.of_pods(namespace, selection).await;
                let pods = pods.map_err(|error| Refusal::upstream(&error))?;
                let item = |pod: &PodUsage| MetricValue::new(*metric, object(["Pod", "v1"], &pod.name), pod.usage);
                Ok(pods.iter().filter_map(item).collect())
            }
            (Resource::Workload(workload), Some(name)) => {
                let usage = self.figures.of_workload(namespace, *workload, name).await;
                let usage = usage.map_err(|error| Refusal::upstream(&error))?;
                Ok(MetricValue::new(*metric, object(workload.identity(), name), usage).into_iter().collect())
            }
            (Resource::Workload(workload), None) => {
                let resource = workload.resource();
                Err(Refusal::bad_request(format!("{resource}: name one: only pods are listed by labels")))
            }
        }
    }
}

// === impl MetricValue ===

impl MetricValue {
    /// None where the metric's value isn't known.
    fn new(metric: Metric, described_object: ObjectReference, usage: Usage) -> Option<Self> {
        let measured = metric.measured(usage)?;
        let is_rate = !measured.window.is_zero();
        Some(Self {
            described_object,
            metric: Identifier { name: metric.as_str(), selector: None },
            timestamp: seconds(measured.time),
            window_seconds: is_rate.then(|| (measured.window + Duration::from_millis(500)).as_secs()),
            value: metric.quantity(measured)?,
        })
    }
}

/// In the words of `sigs.k8s.io/custom-metrics-apiserver/pkg/provider`.
fn not_found(metric: &str, resource: &str, name: &str) -> Refusal {
    Refusal::not_found(format!("the server could not find the metric {metric} for {resource} {name}"))
}

/// RFC 3339, to the second.
fn seconds(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Timestamp::from_second(seconds.try_into().unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX).to_string()
}

// === impl Resource ===

impl Resource {
    fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Pods).chain(Workload::ALL.map(Self::Workload))
    }

    fn named(name: &str) -> Option<Self> {
        Self::all().find(|resource| resource.as_str() == name)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Pods => PODS,
            Self::Workload(workload) => workload.resource(),
        }
    }
}

// === impl Question ===

impl Question {
    fn read((namespace, resource, name, metric): Parts, query: &str) -> Result<Self, Refusal> {
        let unknown = || not_found(&metric, &resource, &name);
        let (known, metric) = Resource::named(&resource).zip(Metric::named(&metric)).ok_or_else(unknown)?;
        let object = |name| ObjectName::try_from(name).map_err(Refusal::bad_request);
        let mut labels = String::new();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "labelSelector" => labels = value.into_owned(),
                "metricLabelSelector" if !value.is_empty() => {
                    return Err(Refusal::bad_request("metricLabelSelector: the metrics have no labels"));
                }
                _ => {}
            }
        }
        let name = (name != "*").then(|| object(name)).transpose()?;
        Ok(Self { metric, resource: known, namespace: object(namespace)?, name, labels })
    }
}

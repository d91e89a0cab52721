//! The extender as kube-scheduler sees it (`pkg/scheduler/extender.go`): its entry in the configuration, and its verbs.
//!
//! Names only, both ways (`nodeCacheCapable: true`). Go's structs have no JSON tags: fields are PascalCase on the way out,
//! null where Go has nil, and are read in any letter case.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::queue::Pod;
use fake_apiserver::https::{Https, Trust};
use fake_apiserver::object::{self, items, name, namespace};

/// An entry of `extenders` in a `KubeSchedulerConfiguration`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Extender {
    /// `https://divvy-webhook.divvy-system.svc`; a verb follows after a slash.
    pub url_prefix: String,
    /// Empty: it isn't asked which nodes fit.
    pub filter_verb: String,
    /// Empty: it isn't asked which of them fit best.
    pub prioritize_verb: String,
    /// Empty: the scheduler binds pods itself.
    pub bind_verb: String,
    /// What one point of its scores counts, times ten.
    pub weight: i64,
    /// Resources that a pod must name one of for the extender to be called; empty for all pods.
    pub managed_resources: Vec<ManagedResource>,
    /// Whether pods are scheduled without it while it fails.
    pub ignorable: bool,
    /// How it is reached; in a real configuration `tlsConfig`.
    #[serde(skip)]
    pub trust: Trust,
}

/// An entry of `managedResources`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedResource {
    /// `nvidia.com/gpu`.
    pub name: String,
    /// Whether the scheduler's own sums leave it out.
    pub ignored_by_scheduler: bool,
}

/// An extender and the connections to it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) config: Extender,
    https: Https,
}

/// What a filter call left over.
#[derive(Debug, Default)]
pub(crate) struct Filtered {
    pub(crate) nodes: Vec<String>,
    /// Texts by names, of nodes that evictions might help and of those that they wouldn't.
    pub(crate) failed: BTreeMap<String, String>,
}

/// After which an answer is none (`DefaultExtenderTimeout`).
const TIMEOUT: Duration = Duration::from_secs(5);

// === impl Extender ===

impl Extender {
    /// With the verbs `filter`, `prioritize` and `bind`, asked about pods that name one of these resources.
    pub fn new(url_prefix: impl Into<String>, trust: Trust, resources: &[&str]) -> Self {
        let managed =
            resources.iter().map(|&name| ManagedResource { name: name.to_owned(), ..ManagedResource::default() });
        let [filter_verb, prioritize_verb, bind_verb] = ["filter", "prioritize", "bind"].map(String::from);
        let (url_prefix, managed_resources) = (url_prefix.into(), managed.collect());
        Self {
            url_prefix,
            filter_verb,
            prioritize_verb,
            bind_verb,
            weight: 1,
            managed_resources,
            ignorable: false,
            trust,
        }
    }

    pub(crate) fn ignored(&self) -> Vec<String> {
        let ignored = self.managed_resources.iter().filter(|own| own.ignored_by_scheduler);
        ignored.map(|own| own.name.clone()).collect()
    }

    /// Whether it is asked about this pod at all.
    pub(crate) fn manages(&self, pod: &Value) -> bool {
        let containers = items(pod, "/spec/containers").iter().chain(items(pod, "/spec/initContainers"));
        let amounts = containers.flat_map(|container| ["requests", "limits"].map(|of| &container["resources"][of]));
        let mut names = amounts.filter_map(Value::as_object).flat_map(Map::keys);
        self.managed_resources.is_empty()
            || names.any(|name| self.managed_resources.iter().any(|own| own.name == *name))
    }
}

// === impl Client ===

impl Client {
    pub(crate) fn new(config: Extender) -> anyhow::Result<Self> {
        let https = Https::new(&config.trust).context("trusting the extender")?;
        Ok(Self { config, https })
    }

    /// Which of these nodes can take the pod.
    pub(crate) async fn filter(&self, pod: &Pod, nodes: &[String]) -> anyhow::Result<Filtered> {
        if self.config.filter_verb.is_empty() {
            return Ok(Filtered { nodes: nodes.to_vec(), ..Filtered::default() });
        }
        let mut answer = self.call(&self.config.filter_verb, &arguments(pod, nodes)).await?;
        no_error(&mut answer)?;
        let kept: Vec<String> = field::<Option<_>>(&mut answer, "nodenames")?.unwrap_or_default();
        if let Some(stranger) = kept.iter().find(|kept| !nodes.contains(kept)) {
            bail!(
                "extender {:?} claims a filtered node {stranger:?} which is not found in the input node list",
                self.config.url_prefix
            );
        }
        let mut failed: BTreeMap<String, String> = field::<Option<_>>(&mut answer, "failednodes")?.unwrap_or_default();
        failed
            .extend(field::<Option<BTreeMap<_, _>>>(&mut answer, "failedandunresolvablenodes")?.into_iter().flatten());
        Ok(Filtered { nodes: kept, failed })
    }

    /// How well each of these nodes suits the pod: 0 to 10 by name, times the weight.
    pub(crate) async fn prioritize(&self, pod: &Pod, nodes: &[String]) -> anyhow::Result<BTreeMap<String, i64>> {
        if self.config.prioritize_verb.is_empty() {
            return Ok(BTreeMap::new());
        }
        let answer = self.call(&self.config.prioritize_verb, &arguments(pod, nodes)).await?;
        let scores = answer.as_array().context("the answer is no list")?.iter().map(|score| {
            let mut score = score.clone();
            anyhow::Ok((
                field(&mut score, "host")?,
                field::<i64>(&mut score, "score")?.saturating_mul(self.config.weight),
            ))
        });
        scores.collect()
    }

    pub(crate) async fn bind(&self, pod: &Value, node: &str) -> anyhow::Result<()> {
        let binding = json!({
            "PodName": name(pod), "PodNamespace": namespace(pod), "PodUID": object::uid(pod), "Node": node,
        });
        no_error(&mut self.call(&self.config.bind_verb, &binding).await?)
    }

    async fn call(&self, verb: &str, arguments: &Value) -> anyhow::Result<Value> {
        let url = format!("{}/{verb}", self.config.url_prefix.trim_end_matches('/'));
        let posted = self.https.post(&url, None, arguments.to_string().into_bytes(), TIMEOUT).await;
        let (code, body) = posted.with_context(|| format!("Post {url:?}"))?;
        if code != hyper::StatusCode::OK {
            bail!("failed {verb} with extender at URL {url}, code {}", code.as_u16());
        }
        serde_json::from_slice(&body).with_context(|| format!("reading the answer of {url}"))
    }
}

/// A pod inside another object doesn't say what it is.
fn arguments(pod: &Pod, nodes: &[String]) -> Value {
    let mut pod = (*pod.object).clone();
    object::map(&mut pod).retain(|field, _| !matches!(field.as_str(), "apiVersion" | "kind"));
    json!({ "Pod": pod, "Nodes": null, "NodeNames": nodes })
}

/// Takes a field out of an answer, whichever its letter case.
fn field<T: DeserializeOwned>(answer: &mut Value, lower: &str) -> anyhow::Result<T> {
    let fields = answer.as_object_mut().context("the answer is no object")?;
    let key = fields.keys().find(|key| key.to_lowercase() == lower).cloned();
    let value = key.and_then(|key| fields.remove(&key)).unwrap_or_default();
    serde_json::from_value(value).with_context(|| format!("reading {lower} of the answer"))
}

fn no_error(answer: &mut Value) -> anyhow::Result<()> {
    match field::<Option<String>>(answer, "error")? {
        Some(error) if !error.is_empty() => bail!("{error}"),
        _ => Ok(()),
    }
}

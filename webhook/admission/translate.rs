//! A pod in the words of another system becomes one in ours: what stands behind this knows no dialect. A copy of a pod
//! becomes a new one: it has no plan and no GPUs yet.

use std::borrow::Cow;
use std::collections::BTreeMap;

use divvy_api::annotation::{self, DialectAnnotation, Document as _, RequestAnnotation};
use divvy_api::names::annotation::{CARDS, PLANNED};
use divvy_systems::{Context, Translation};
use serde_json::json;

use super::Settings;
use super::patch::{self, Changes, Patch};
use super::pod::Pod;
use super::refusal::Refusal;

/// A pod in our words.
#[derive(Debug)]
pub(super) struct Translated<'p> {
    pub(super) pod: Cow<'p, Pod>,
    /// What makes the pod so, but for variables.
    pub(super) patch: Patch,
    /// Positions of variables that are to be removed, by container. They are still there, so that messages have the author's
    /// positions.
    pub(super) variables: BTreeMap<usize, Vec<usize>>,
    pub(super) warnings: Vec<String>,
}

/// The pod as the rest of admission reads it.
pub(super) fn translate<'p>(
    pod: &'p Pod,
    namespace: &str,
    settings: &Settings,
) -> Result<Translated<'p>, Vec<Refusal>> {
    let mut translated = in_our_words(pod, namespace, settings)?;
    translated.drop_copied();
    Ok(translated)
}

/// Annotations that extender and daemon write on a pod once it exists: a new one has them from the pod that it is a copy of, as
/// `kubectl replace --force`, `kubectl debug --copy-to` and a restored backup make them.
pub(super) fn copied(pod: &Pod) -> Vec<&str> {
    let record = pod.annotation(DialectAnnotation::KEY);
    let record: Option<DialectAnnotation> = record.and_then(|text| annotation::decode(text).ok());
    let of_dialect = |key: &str| record.as_ref().is_some_and(|record| divvy_systems::is_written(key, record));
    let keys = pod.annotations().into_iter().flatten().map(|(key, _)| key.as_str());
    keys.filter(|key| [PLANNED, CARDS].contains(key) || of_dialect(key)).collect()
}

fn in_our_words<'p>(pod: &'p Pod, namespace: &str, settings: &Settings) -> Result<Translated<'p>, Vec<Refusal>> {
    if settings.dialects.is_empty() {
        return Ok(untouched(pod));
    }
    // An annotation that can't be read is refused where requests are.
    let text = pod.annotation(RequestAnnotation::KEY);
    let request: Option<RequestAnnotation> = text.and_then(|text| annotation::decode(text).ok());
    let is_favoured = settings.favoured_namespaces.contain(namespace);
    let context = Context { names: &settings.names, is_favoured };
    let written = pod.as_written(request.as_ref());
    let refused = |refusal: divvy_systems::Refusal| vec![refusal.into()];
    let dialect = divvy_systems::spoken(&written, &settings.dialects, &settings.names).map_err(refused)?;
    let translation = dialect.map_or(Ok(None), |dialect| dialect.translate(&written, context));
    let mut translated = match translation.map_err(refused)? {
        None => untouched(pod),
        Some(translation) => {
            let record = record(pod, &translation.record).map_err(|refusal| vec![refusal])?;
            apply(pod, translation, record, settings)
        }
    };
    // HAMi's words may be ours already.
    if dialect.is_some() {
        translated.reschedule(pod.scheduler(), settings);
    }
    Ok(translated)
}

fn untouched(pod: &Pod) -> Translated<'_> {
    Translated { pod: Cow::Borrowed(pod), patch: Patch::default(), variables: BTreeMap::new(), warnings: Vec::new() }
}

/// The annotation for this translation and for earlier ones of the pod, as another webhook may have added a container; `None` if
/// it is as it should be.
fn record(pod: &Pod, record: &DialectAnnotation) -> Result<Option<DialectAnnotation>, Refusal> {
    let DialectAnnotation { name, containers, annotations, outputs } = record.clone();
    if containers.is_empty() && annotations.is_empty() && outputs.is_empty() {
        return Ok(None);
    }
    let Some(text) = pod.annotation(DialectAnnotation::KEY) else { return Ok(Some(record.clone())) };
    let before: DialectAnnotation = annotation::decode(text)?;
    let mut known = before.clone();
    if known.name != name {
        return Err(Refusal::Dialect(divvy_systems::Refusal::Mixed {
            first: format!("annotation {}", DialectAnnotation::KEY),
            first_system: known.name,
            second: "the pod".to_owned(),
            second_system: name,
        }));
    }
    known.containers.extend(containers);
    known.annotations.extend(annotations);
    known.outputs.extend(outputs.into_iter().filter(|output| !before.outputs.contains(output)));
    Ok((known != before).then_some(known))
}

fn apply<'p>(
    pod: &'p Pod,
    translation: Translation,
    record: Option<DialectAnnotation>,
    settings: &Settings,
) -> Translated<'p> {
    let mut patch = Patch::default();
    let mut translated = pod.clone();
    for (at, (place, limits)) in pod.containers().zip(&translation.limits).enumerate() {
        let Some(limits) = limits else { continue };
        let is_meant = |name: &str| settings.names.is_ours(name) || translation.resources.iter().any(|of| of == name);
        let changes = |present| patch::amounts(present, limits, is_meant);
        let [of_limits, of_requests] = [place.limits(), place.requests()].map(changes);
        if !place.has_resources() {
            patch.add(&format!("{}/resources", place.pointer()), json!({}));
        }
        translated.change_amounts(at, &of_limits, &of_requests);
        for (list, present, changes) in
            [("limits", place.limits(), of_limits), ("requests", place.requests(), of_requests)]
        {
            patch.change(&format!("{}/resources/{list}", place.pointer()), present.is_some(), changes);
        }
    }
    let variables = pod.containers().enumerate().filter_map(|(at, place)| {
        let names = translation.variables.get(&at)?.iter();
        Some((at, names.flat_map(|name| place.variables(name)).map(|(position, _)| position).collect()))
    });
    let variables = variables.collect();
    let mut annotations: Changes = BTreeMap::new();
    annotations.extend(translation.annotations.into_iter().map(|(key, value)| (key, value.map(Into::into))));
    annotations
        .extend(record.map(|record| (DialectAnnotation::KEY.to_owned(), Some(annotation::encode(&record).into()))));
    patch.change("/metadata/annotations", pod.annotations().is_some(), annotations.clone());
    translated.annotate(&annotations);
    Translated { pod: Cow::Owned(translated), patch, variables, warnings: translation.warnings }
}

// === impl Translated ===

impl Translated<'_> {
    /// Where the pod isn't as its translation has it.
    pub(super) fn first_change(&self) -> Option<String> {
        let variable = self.variables.iter().find_map(|(at, positions)| {
            Some(format!("{}/env/{}", self.pod.containers().nth(*at)?.pointer(), positions.first()?))
        });
        self.patch.first().map(str::to_owned).or(variable)
    }

    fn drop_copied(&mut self) {
        let copied = copied(&self.pod);
        let warning = |key: &&str| {
            format!("annotation {key}: removed: it is about the pod that this one, or its template, was copied from")
        };
        self.warnings.extend(copied.iter().map(warning));
        let changes: Changes = copied.into_iter().map(|key| (key.to_owned(), None)).collect();
        if !changes.is_empty() {
            self.patch.change("/metadata/annotations", true, changes.clone());
            self.pod.to_mut().annotate(&changes);
        }
    }

    /// Gives a pod of another system to the scheduler that is to have it, or says that its own one may be gone.
    fn reschedule(&mut self, scheduler: Option<&str>, settings: &Settings) {
        let Some(name) = scheduler else { return };
        match settings.rewrite_schedulers.get(name) {
            Some(scheduler) => {
                self.patch.add("/spec/schedulerName", scheduler.as_str().into());
                self.pod.to_mut().reschedule(scheduler);
            }
            None if divvy_systems::is_scheduler(name) => self.warnings.push(format!(
                "spec.schedulerName: {name} stays: if nobody runs that scheduler any more the pod waits for ever; \
                 rewriteSchedulers of divvy-webhook gives such pods to another one"
            )),
            None => {}
        }
    }
}

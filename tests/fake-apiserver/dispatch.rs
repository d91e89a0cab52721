//! From a request to its outcome.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::admission::{self, Admitted, Held};
use super::core::{Harm, State};
use super::discovery;
use super::kinds;
use super::log::Request;
use super::object::{self, Object, text};
use super::patch::{self, Format};
use super::port_forward::{self, Forwarding, Offer};
use super::rbac::{self, Action, Subject};
use super::remove::{self, DeleteOptions};
use super::resource::Resource;
use super::reviews;
use super::route::{Params, Route};
use super::scale;
use super::selector::Selector;
use super::status::{self, Answer, Refusal};
use super::store::{Key, Store};
use super::table::{Form, Page};
use super::target::Target;
use super::users::User;
use super::watch::Watch;
use super::write::{self, Draft, Writer};

/// A request, read to its end.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    /// Headers, empty where there is none.
    pub(crate) token: String,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    pub(crate) user_agent: String,
    /// Set by a client that wants to go on in WebSocket.
    pub(crate) websocket: Option<Offer>,
    pub(crate) body: Vec<u8>,
}

/// What is answered.
#[derive(Debug)]
pub(crate) enum Outcome {
    Json(StatusCode, Value),
    Text(StatusCode, &'static str),
    Watch(Box<Watch>),
    /// Nothing yet: webhooks are to be asked first.
    Held(Box<Held>),
    /// What a pod answers at this address.
    Proxied(String),
    /// Ports of a pod.
    Forwarded(Forwarding),
    /// What a container has logged.
    Log(Bytes),
    /// This, once answers may be given again.
    Late(StatusCode, Value),
    /// Nothing, ever.
    Silence,
}

/// How long a watch lasts that no client limits, and the longest there is.
const WATCH: Duration = Duration::from_secs(1800);
const NOT_FOUND: Outcome = Outcome::Text(StatusCode::NOT_FOUND, "404 page not found\n");

// === impl Outcome ===

impl Outcome {
    pub(crate) fn ok(body: Value) -> Self {
        Self::Json(StatusCode::OK, body)
    }

    pub(crate) fn refused(refusal: &Refusal) -> Self {
        Self::Json(refusal.code, refusal.to_json())
    }

    fn admitted(admitted: Admitted) -> Self {
        match admitted {
            Admitted::Made((code, body)) => Self::Json(code, body),
            Admitted::Held(held) => Self::Held(held),
        }
    }

    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Json(code, _) | Self::Late(code, _) | Self::Text(code, _) => code.as_u16(),
            Self::Watch(_) | Self::Held(_) | Self::Proxied(_) | Self::Log(_) => StatusCode::OK.as_u16(),
            Self::Forwarded(_) => StatusCode::SWITCHING_PROTOCOLS.as_u16(),
            Self::Silence => 0,
        }
    }
}

/// Answers a request and writes it into the log, unless webhooks must be asked about it.
pub(crate) fn dispatch(state: &mut State, asked: &Asked) -> Outcome {
    let params = Params::parse(&asked.query);
    let route = Route::parse(&asked.path, &state.store.resources);
    let verb = route.verb(&asked.method, &params);
    let user = state.users.get(&asked.token).cloned();
    let harm = state.fault(verb, &asked.path);
    let outcome = match (&user, harm) {
        (None, _) => Err(Refusal::unauthorized()),
        (Some(_), Some(Harm::Refused(code))) => Err(Refusal::injected(code)),
        (Some(_), Some(Harm::Swallowed)) => Ok(Outcome::Silence),
        (Some(user), Some(Harm::Unanswered | Harm::Late) | None) => {
            authorize(state, user, asked, &route, verb, &params)
                .and_then(|()| answer(state, user, asked, &route, verb, &params))
        }
    };
    let outcome = match outcome.unwrap_or_else(|refusal| Outcome::refused(&refusal)) {
        Outcome::Json(..) if matches!(harm, Some(Harm::Unanswered)) => Outcome::Silence,
        Outcome::Json(code, body) if matches!(harm, Some(Harm::Late)) => Outcome::Late(code, body),
        outcome => outcome,
    };
    let (resource, subresource) = match &route {
        Route::Resource(target) => (target.resource.qualified(), target.subresource.clone()),
        Route::Root(_) | Route::Nowhere => Default::default(),
    };
    let (user, path, code) = (user.unwrap_or_default().name, asked.path.clone(), outcome.code());
    let request = Request { verb: verb.to_owned(), path, user, resource, subresource, code };
    match outcome {
        Outcome::Held(mut held) => {
            held.request = request;
            Outcome::Held(held)
        }
        outcome => {
            state.log.push(request);
            outcome
        }
    }
}

/// Whether the user may do it. What there is may be read by all who are let in, and so may their own rights. A list of one
/// name is about that name (`RequestInfoFactory` of `apiserver/pkg/endpoints/request`).
fn authorize(state: &State, user: &User, asked: &Asked, route: &Route, verb: &str, params: &Params) -> Answer<()> {
    let Route::Resource(target) = route else { return Ok(()) };
    let resource = &target.resource;
    if !state.guarded || resource.kind == "SelfSubjectAccessReview" {
        return Ok(());
    }
    let of_one = matches!(verb, "list" | "watch").then(|| select(target, params)).transpose()?.unwrap_or_default();
    let name = if target.name.is_empty() { of_one.name() } else { &target.name };
    let action = |verb| Action {
        verb,
        group: &resource.group,
        resource: &resource.plural,
        subresource: &target.subresource,
        name,
        namespace: &target.namespace,
        path: &asked.path,
    };
    let subject = Subject { user: &user.name, groups: &user.all_groups() };
    let is_allowed = |verb| rbac::allows(&state.store, &subject, &action(verb)).is_some();
    if !is_allowed(verb) {
        return Err(target.forbidden_to(&user.name, verb));
    }
    // Since Kubernetes 1.35, an upgraded GET needs the verb of a POST too (`ensureAuthorizedForVerb`).
    if target.subresource == "portforward" && !is_allowed("create") {
        return Err(Refusal::forbidden(resource, &target.name, ""));
    }
    Ok(())
}

fn answer(
    state: &mut State,
    user: &User,
    asked: &Asked,
    route: &Route,
    verb: &str,
    params: &Params,
) -> Answer<Outcome> {
    match route {
        Route::Nowhere => Ok(NOT_FOUND),
        Route::Root(_) if asked.method != Method::GET => Err(Refusal::no_method()),
        Route::Root(path) => Ok(root(path, &state.store)),
        Route::Resource(target) if target.subresource == "log" && verb == "get" => {
            Ok(Outcome::Log(state.logs.read(target, target.live(&state.store)?, params)?))
        }
        Route::Resource(target) if !reviews::is_question(&target.resource) => {
            handle(&mut state.store, user, asked, target, verb, params)
        }
        Route::Resource(_) if verb != "create" => Err(Refusal::no_method()),
        Route::Resource(target) => {
            let answered = reviews::answer(state, user, &target.resource, &asked.json()?)?;
            Ok(Outcome::Json(StatusCode::CREATED, answered))
        }
    }
}

fn handle(
    store: &mut Store,
    user: &User,
    asked: &Asked,
    target: &Target,
    verb: &str,
    params: &Params,
) -> Answer<Outcome> {
    let form = Form::accepted(&asked.accept, params.get("includeObject"))?;
    let itself = target.subresource.is_empty();
    let writer = asked.writer(params);
    let resource = &target.resource;
    match verb {
        "get" if itself || matches!(target.subresource.as_str(), "ephemeralcontainers" | "status") => {
            Ok(Outcome::ok(form.one(resource, target.live(store)?)))
        }
        "get" if target.subresource == "scale" => Ok(Outcome::ok(scale::of(target.live(store)?))),
        "get" if target.subresource == "proxy" => proxied(store, target, &asked.path),
        "get" if target.subresource == "portforward" => forwarded(store, target, asked),
        "list" => list(store, target, params, form),
        "watch" => watch(store, target, params, form),
        "create" if !itself => post(store, target, &asked.json()?, &writer),
        "create" if target.name.is_empty() => {
            let draft = Draft::create(store, target, &asked.json()?, &writer)?;
            admission::hold(store, user, draft, form).map(Outcome::admitted)
        }
        "update" if is_writable(target) => {
            let body = asked.json()?;
            let draft = Draft::update(store, target, &writer, |_| Ok(body))?;
            admission::hold(store, user, draft, form).map(Outcome::admitted)
        }
        "patch" if is_writable(target) => {
            let format = Format::of(&asked.content_type, resource.is_custom())?;
            let draft = patch::draft(store, target, format, &asked.parse()?, &writer, params.is("force"))?;
            admission::hold(store, user, draft, form).map(Outcome::admitted)
        }
        "delete" if itself => {
            let (object, gone) = remove::delete(store, target, &asked.delete_options(params)?)?;
            let status = status::success(resource, &target.name, object::uid(&object));
            Ok(Outcome::ok(if gone && resource.kind != "Pod" { status } else { form.one(resource, &object) }))
        }
        "deletecollection" => delete_all(store, target, params, form, &asked.delete_options(params)?),
        _ => Err(Refusal::no_method()),
    }
}

/// Where a pod is to be asked: its name may stand between a scheme and a port (`SplitSchemeNamePort`).
fn proxied(store: &Store, target: &Target, path: &str) -> Answer<Outcome> {
    let (name, port) = match target.name.split(':').collect::<Vec<_>>()[..] {
        [_, name, port] | [name, port] => (name, port),
        _ => (target.name.as_str(), "80"),
    };
    let pod = Target { name: name.to_owned(), subresource: String::new(), ..target.clone() };
    let address = pod.live(store)?["status"]["podIP"].as_str().map(str::to_owned);
    let address = address.ok_or_else(|| Refusal::bad_request("address not allowed"))?;
    let (_, rest) = path.split_once("/proxy").unwrap_or_default();
    Ok(Outcome::Proxied(format!("http://{address}:{port}{rest}")))
}

fn forwarded(store: &Store, target: &Target, asked: &Asked) -> Answer<Outcome> {
    let forwarding = Forwarding::new(target.live(store)?, asked.websocket.as_ref(), &asked.query)?;
    let is_known = asked.websocket.as_ref().is_some_and(port_forward::is_known);
    Ok(if is_known { Outcome::Forwarded(forwarding) } else { Outcome::Text(StatusCode::FORBIDDEN, "") })
}

fn is_writable(target: &Target) -> bool {
    !target.name.is_empty() && matches!(target.subresource.as_str(), "" | "ephemeralcontainers" | "status")
}

fn root(path: &[String], store: &Store) -> Outcome {
    if let [health] = path
        && matches!(health.as_str(), "healthz" | "livez" | "readyz")
    {
        return Outcome::Text(StatusCode::OK, "ok");
    }
    discovery::answer(path, &store.resources).map_or(NOT_FOUND, Outcome::ok)
}

/// The subresources that are only posted to.
fn post(store: &mut Store, target: &Target, body: &Object, writer: &Writer) -> Answer<Outcome> {
    match target.subresource.as_str() {
        "binding" => {
            write::update(store, target, writer, |pod| kinds::bind(target, pod, body))?;
        }
        "eviction" => {
            let options = DeleteOptions::of(&body["deleteOptions"]);
            let dry_run = options.dry_run || writer.dry_run;
            remove::delete(store, target, &DeleteOptions { dry_run, ..options })?;
        }
        _ => return Err(Refusal::no_method()),
    }
    let done = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    Ok(Outcome::Json(StatusCode::CREATED, done))
}

fn select(target: &Target, params: &Params) -> Answer<Selector> {
    let mut fields = params.get("fieldSelector").to_owned();
    if !target.name.is_empty() {
        fields = format!("{fields},metadata.name={}", target.name);
    }
    Selector::parse(&target.resource, params.get("labelSelector"), &fields)
}

fn namespace(target: &Target) -> Option<&str> {
    Some(target.namespace.as_str()).filter(|namespace| !namespace.is_empty())
}

fn list(store: &Store, target: &Target, params: &Params, form: Form) -> Answer<Outcome> {
    let (resource, selector) = (&target.resource, select(target, params)?);
    let (token, version) = (params.get("continue"), params.number("resourceVersion").unwrap_or_default());
    let exact = params.get("resourceVersionMatch") == "Exact";
    let (revision, after) = match parse_token(resource, token) {
        Some((revision, after)) => (revision, Some(after)),
        None if !token.is_empty() => return Err(Refusal::bad_request("continue key is not valid")),
        None if exact => (version, None),
        None => (store.revision, None),
    };
    let objects = store.list_at(revision, resource, namespace(target)).map_err(|_forgotten| {
        Refusal::expired(
            "The provided continue parameter is too old to display a consistent list result. You must start a new list \
             without the continue parameter.",
        )
    })?;
    let mut selected = objects
        .iter()
        .filter(|(key, object)| after.as_ref().is_none_or(|after| *key > after) && selector.takes(object));
    let limit = params.number("limit").filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let page: Vec<_> = selected.by_ref().take(limit).collect();
    let remaining = selected.count();
    let last = page.last().filter(|_| remaining > 0).map(|(key, _)| *key);
    let next = last.map(|key| format!("{revision}:{}/{}", key.namespace, key.name)).unwrap_or_default();
    let objects: Vec<&Object> = page.into_iter().map(|(_, object)| &**object).collect();
    Ok(Outcome::ok(form.list(resource, &objects, &Page { revision, next, remaining })))
}

/// The revision that the first page showed, and the last object of the page before.
fn parse_token(resource: &Resource, token: &str) -> Option<(u64, Key)> {
    let (revision, last) = token.split_once(':')?;
    let (namespace, name) = last.split_once('/')?;
    Some((revision.parse().ok()?, Key::new(resource, namespace, name)))
}

fn watch(store: &Store, target: &Target, params: &Params, form: Form) -> Answer<Outcome> {
    let (resource, selector) = (Arc::clone(&target.resource), select(target, params)?);
    let version = params.get("resourceVersion");
    let listed = params.is("sendInitialEvents");
    let from_now = listed || matches!(version, "" | "0");
    let seen = if from_now { store.revision } else { version.parse().map_err(|_error| invalid_version(version))? };
    let wants_initial = listed || (from_now && params.get("sendInitialEvents").is_empty());
    let initial = wants_initial.then(|| store.list(&resource, namespace(target))).into_iter().flatten();
    let initial = initial.map(|(_, object)| object).filter(|object| selector.takes(object)).collect();
    let timeout = params.number("timeoutSeconds").filter(|seconds| *seconds > 0).map_or(WATCH, Duration::from_secs);
    Ok(Outcome::Watch(Box::new(Watch {
        resource,
        namespace: namespace(target).map(String::from),
        selector,
        form,
        from: store.revision,
        seen,
        initial,
        marks_initial: listed,
        bookmarks: params.is("allowWatchBookmarks"),
        timeout: timeout.min(WATCH),
    })))
}

fn invalid_version(version: &str) -> Refusal {
    Refusal::bad_request(format!("Invalid value: {version:?}: strconv.ParseUint: parsing {version:?}: invalid syntax"))
}

fn delete_all(
    store: &mut Store,
    target: &Target,
    params: &Params,
    form: Form,
    options: &DeleteOptions,
) -> Answer<Outcome> {
    let selector = select(target, params)?;
    let mut objects = store.list(&target.resource, namespace(target));
    objects.retain(|_, object| selector.takes(object));
    for key in objects.keys() {
        let one = Target { namespace: key.namespace.clone(), name: key.name.clone(), ..target.clone() };
        // One that went along with another of them is gone already.
        if one.live(store).is_ok() {
            remove::delete(store, &one, options)?;
        }
    }
    let page = Page { revision: store.revision, ..Page::default() };
    let objects: Vec<&Object> = objects.values().map(|object| &**object).collect();
    Ok(Outcome::ok(form.list(&target.resource, &objects, &page)))
}

// === impl Asked ===

impl Asked {
    fn writer(&self, params: &Params) -> Writer {
        let named = params.get("fieldManager");
        let applies = self.content_type.starts_with("application/apply-patch");
        // Without a name it is the client program's, up to its version; only an apply must have one.
        let program = self.user_agent.split('/').next().filter(|program| !program.is_empty()).unwrap_or("unknown");
        let manager = if named.is_empty() && !applies { program } else { named };
        Writer { manager: manager.to_owned(), dry_run: params.get("dryRun") == "All", recorded: false }
    }

    fn json(&self) -> Answer<Value> {
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        if matches!(media, "" | "application/json") {
            self.parse()
        } else {
            Err(Refusal::media_type("application/json"))
        }
    }

    fn parse(&self) -> Answer<Value> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Refusal::bad_request(format!("couldn't get version/kind; json parse error: {error}")))
    }

    /// From the body and the query; the query counts where both say something.
    fn delete_options(&self, params: &Params) -> Answer<DeleteOptions> {
        let body = if self.body.is_empty() { Value::Null } else { self.json()? };
        let kind = text(&body, "/kind");
        if !matches!(kind, "" | "DeleteOptions") {
            return Err(Refusal::bad_request(format!("expected DeleteOptions, not {kind}")));
        }
        let options = DeleteOptions::of(&body);
        let grace = params.number("gracePeriodSeconds").or(options.grace);
        Ok(DeleteOptions { grace, dry_run: options.dry_run || params.get("dryRun") == "All", ..options })
    }
}

#[cfg(test)]
mod tests;

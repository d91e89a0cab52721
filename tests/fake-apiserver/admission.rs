//! What webhooks have to say about a write, asked as a real API server asks
//! (`apiserver/pkg/admission/plugin/webhook`): mutating ones one after another in the order of their configurations'
//! names, those with `reinvocationPolicy: IfNeeded` once more if a later one changed the object; then validating ones.
//!
//! ```text
//! dispatch ──Draft──▶ hold ──Held──▶ mutate ──▶ settle ──▶ validate ──▶ commit
//!                      └─ nobody to ask ──────────┴────────────────────────┘
//! ```
//!
//! No lock is held while a webhook thinks: if somebody else changes the object meanwhile, the request is worked out anew.
//!
//! Other than with a real server: bindings, evictions and deletions are never reviewed, `matchPolicy` is always
//! `Exact`, validating webhooks are asked one after another, a webhook without `caBundle` is believed by nobody, match
//! conditions know `object`, `oldObject` and `request`, but no `authorizer`, fields that a webhook sets count as the
//! client's in `managedFields`, warnings are never cut short, and audit annotations go nowhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::Value;

use super::core::Core;
use super::log::Request;
use super::status::{Answer, Refusal};
use super::store::Store;
use super::table::Form;
use super::users::User;
use super::write::Draft;

mod call;
mod hook;
mod review;

use self::hook::Hook;
use self::review::Question;

/// A write that webhooks have a say in.
#[derive(Debug)]
pub(crate) struct Held {
    draft: Draft,
    form: Form,
    user: User,
    mutating: Vec<Hook>,
    validating: Vec<Hook>,
    /// For the log, once there is an outcome.
    pub(crate) request: Request,
}

/// What becomes of a write.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// The write is made.
    Made(Written),
    /// Webhooks are to be asked first.
    Held(Box<Held>),
}

/// Status and body of the answer to a write.
pub(crate) type Written = (StatusCode, Value);

/// What the webhooks of one request have said so far.
struct Session<'a> {
    core: &'a Core,
    user: &'a User,
    /// For the client, each once.
    warnings: Vec<String>,
}

/// Makes the write, or says that webhooks must be asked first.
pub(crate) fn hold(store: &mut Store, user: &User, mut draft: Draft, form: Form) -> Answer<Admitted> {
    let [mutating, validating] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
        .map(|kind| hook::interested(store, kind, &draft));
    if mutating.is_empty() && validating.is_empty() {
        draft.settle()?;
        return finish(store, draft, form).map(Admitted::Made);
    }
    let (user, request) = (user.clone(), Request::default());
    Ok(Admitted::Held(Box::new(Held { draft, form, user, mutating, validating, request })))
}

fn finish(store: &mut Store, draft: Draft, form: Form) -> Answer<Written> {
    let (resource, new) = (Arc::clone(&draft.target.resource), draft.live.is_none());
    let object = draft.commit(store)?;
    let code = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((code, form.one(&resource, &object)))
}

// === impl Held ===

impl Held {
    /// Asks the webhooks and makes the write, if they agree; with what they want the client to know. `None`: somebody else
    /// was faster, and the request is to be worked out anew.
    pub(crate) async fn decide(self, core: &Core) -> Option<(Written, Vec<String>)> {
        let Self { mut draft, form, user, mutating, validating, mut request } = self;
        let mut session = Session { core, user: &user, warnings: Vec::new() };
        let verdict = session.ask(&mut draft, &mutating, &validating).await;
        core.update(|state| {
            if draft.is_stale(&state.store) {
                return None;
            }
            let written = verdict
                .and_then(|()| finish(&mut state.store, draft, form))
                .unwrap_or_else(|refusal| (refusal.code, refusal.to_json()));
            request.code = written.0.as_u16();
            state.log.push(request);
            Some((written, session.warnings))
        })
    }
}

// === impl Session ===

impl Session<'_> {
    async fn ask(&mut self, draft: &mut Draft, mutating: &[Hook], validating: &[Hook]) -> Answer<()> {
        let (mut invoked, mut again) = (BTreeSet::new(), BTreeSet::new());
        for (at, hook) in mutating.iter().enumerate() {
            if self.mutate(draft, hook).await? {
                again.append(&mut invoked);
            }
            if hook.reinvoked() {
                invoked.insert(at);
            }
        }
        for (at, hook) in mutating.iter().enumerate() {
            if again.contains(&at) && self.mutate(draft, hook).await? {
                again.append(&mut invoked);
            }
        }
        draft.settle()?;
        let mut verdict = Ok(());
        for hook in validating {
            verdict = verdict.and(self.review(draft, hook).await.map(drop));
        }
        verdict
    }

    /// Whether the webhook changed the object.
    async fn mutate(&mut self, draft: &mut Draft, hook: &Hook) -> Answer<bool> {
        let Some(patch) = self.review(draft, hook).await? else { return Ok(false) };
        let before = draft.shown();
        let mut object = before.clone();
        json_patch::patch(&mut object, &patch).map_err(|error| Refusal::internal(&error.to_string()))?;
        draft.replace(&object)?;
        Ok(object != before)
    }

    /// The patch that the webhook answered with, if it was asked at all and has one.
    async fn review(&mut self, draft: &Draft, hook: &Hook) -> Answer<Option<json_patch::Patch>> {
        let question = Question::new(draft, self.user);
        if !hook.wants(draft, &question)? {
            return Ok(None);
        }
        let answer = match call::call(self.core, hook, &question).await {
            Ok(answer) => answer,
            Err(why) if hook.fails_open() => {
                tracing::info!(webhook = hook.name(), why, "a webhook failed and is passed over");
                return Ok(None);
            }
            Err(why) => return Err(Refusal::internal(&format!("failed calling webhook {:?}: {why}", hook.name()))),
        };
        for warning in answer.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        match answer.denial {
            Some(status) => Err(Refusal::denied(hook.name(), &status)),
            None => Ok(answer.patch),
        }
    }
}

/// The text of a `Warning` header: `299 - "text"`; `None` for one that no header can carry.
pub(crate) fn warning_header(text: &str) -> Option<String> {
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    (!text.chars().any(char::is_control)).then(|| format!("299 - \"{quoted}\""))
}

//! Questions that are posted like objects, answered, and not kept: who has this token, and who may do what.

use serde_json::{Value, json};

use super::core::State;
use super::object::{self, Object, items, text};
use super::rbac::{self, Action, Subject};
use super::resource::Resource;
use super::status::{Answer, Fault, Refusal};
use super::users::User;

/// Whom tokens are meant for when nobody says it (`--api-audiences`).
const AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

/// The groups of the API whose objects are questions.
const GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Whether objects of this resource are questions.
pub(crate) fn is_question(resource: &Resource) -> bool {
    GROUPS.contains(&resource.group.as_str())
}

/// The question with its answer as `status`.
pub(crate) fn answer(state: &State, user: &User, resource: &Resource, question: &Object) -> Answer<Object> {
    let status = match resource.kind.as_str() {
        "TokenReview" => token(state, question),
        "SelfSubjectAccessReview" => access(state, resource, &user.name, &user.all_groups(), question)?,
        _ => {
            let (name, groups) = (text(question, "/spec/user"), items(question, "/spec/groups"));
            let groups: Vec<String> = groups.iter().filter_map(Value::as_str).map(String::from).collect();
            if name.is_empty() && groups.is_empty() {
                let message = "at least one of user or group must be specified";
                return Err(Refusal::invalid(resource, "", &[Fault::invalid("spec.user", &"".into(), message)]));
            }
            access(state, resource, name, &groups, question)?
        }
    };
    let mut answered = resource.keep(question);
    object::map(&mut answered).insert("status".to_owned(), status);
    Ok(answered)
}

fn token(state: &State, question: &Object) -> Value {
    let audiences: Vec<&str> = match items(question, "/spec/audiences") {
        [] => vec![AUDIENCE],
        asked => asked.iter().filter_map(Value::as_str).filter(|asked| *asked == AUDIENCE).collect(),
    };
    let user = state.users.get(text(question, "/spec/token"));
    match user.filter(|_| !audiences.is_empty()) {
        Some(user) => json!({ "authenticated": true, "user": user.info(), "audiences": audiences }),
        None => json!({ "user": {}, "error": "[invalid bearer token, token lookup failed]" }),
    }
}

fn access(state: &State, resource: &Resource, user: &str, groups: &[String], question: &Object) -> Answer<Value> {
    let spec = &question["spec"];
    let (on_object, on_path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if on_object.is_null() == on_path.is_null() {
        let message = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let fault = Fault::invalid("spec.resourceAttributes", on_object, message);
        return Err(Refusal::invalid(resource, "", &[fault]));
    }
    let of = |field| text(on_object, field);
    let action = if on_path.is_null() {
        Action {
            verb: of("/verb"),
            group: of("/group"),
            resource: of("/resource"),
            subresource: of("/subresource"),
            name: of("/name"),
            namespace: of("/namespace"),
            path: "",
        }
    } else {
        Action { verb: text(on_path, "/verb"), path: text(on_path, "/path"), ..Action::default() }
    };
    Ok(match rbac::allows(&state.store, &Subject { user, groups }, &action) {
        Some(reason) => json!({ "allowed": true, "reason": reason }),
        None => json!({ "allowed": false }),
    })
}

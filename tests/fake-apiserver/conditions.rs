//! Match conditions: CEL, evaluated by a Rust engine. It knows the language with its optional values, not the functions
//! that Kubernetes adds; what it doesn't know is an error, as a condition that a real server can't evaluate is.

use std::sync::{Arc, LazyLock};

use cel::{Context, Env, Program, Value as CelValue, to_value};
use serde_json::Value;

use super::object::text;

/// Values of a condition's variables, by their names.
pub(crate) type Variables<'a> = [(&'static str, &'a Value)];

/// The functions and macros of the language.
static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// Whether all conditions hold. One that doesn't outweighs others that can't be told
/// (`pkg/admission/plugin/webhook/matchconditions/matcher.go`).
pub(crate) fn hold(conditions: &[Value], variables: &Variables<'_>) -> Result<bool, String> {
    let results: Vec<_> = conditions.iter().map(|condition| holds(text(condition, "/expression"), variables)).collect();
    if results.contains(&Ok(false)) {
        return Ok(false);
    }
    results.into_iter().find_map(Result::err).map_or(Ok(true), Err)
}

/// Whether this is CEL at all.
pub(crate) fn check(expression: &str) -> Result<(), String> {
    compile(expression).map(drop)
}

fn compile(expression: &str) -> Result<Program, String> {
    LANGUAGE.compile(expression).map_err(|error| format!("compilation failed: {error}"))
}

fn holds(expression: &str, variables: &Variables<'_>) -> Result<bool, String> {
    let program = compile(expression)?;
    let mut context = Context::with_env(Arc::clone(&LANGUAGE));
    for &(name, value) in variables {
        let value: CelValue = to_value(value).map_err(|error| format!("{name} is nothing that CEL knows: {error}"))?;
        context.add_variable_from_value(name, value);
    }
    match program.execute(&context) {
        Ok(CelValue::Bool(holds)) => Ok(holds),
        Ok(other) => Err(format!("expression '{expression}' is no condition: it is {other:?}")),
        Err(error) => Err(format!("expression '{expression}' resulted in error: {error}")),
    }
}

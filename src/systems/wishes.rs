//! What several systems let a whole pod wish for, each under its own keys: models, GPUs, tiers, compute.

use divvy_api::names::annotation::{AVOID_CARD_MODEL, AVOID_CARD_UUID, CARD_MODEL, CARD_UUID, TIER};

use crate::Refusal;
use crate::draft::Draft;

/// In front of every model in HAMi's types.
const VENDOR: &str = "NVIDIA-";

/// The models that one annotation lists, and not those that another one does. Each name may stand anywhere in a type, which is
/// the model, in HAMi's with `NVIDIA-` in front.
pub(crate) fn set_models(
    draft: &mut Draft<'_>,
    wanted: Option<(&'static str, &str)>,
    avoided: Option<(&'static str, &str)>,
) -> Result<(), Refusal> {
    for (ours, list) in [(CARD_MODEL, wanted), (AVOID_CARD_MODEL, avoided)] {
        let Some((key, types)) = list else { continue };
        let patterns = patterns(types).map_err(|problem| draft.refuse(key, problem))?;
        if !patterns.is_empty() {
            draft.set(ours, patterns, &format!("annotation {key}"))?;
        }
    }
    Ok(())
}

/// Models as HAMi and Volcano read them: what is wanted wins over what isn't.
pub(crate) fn set_wanted_models(
    draft: &mut Draft<'_>,
    use_type: &'static str,
    avoid_type: &'static str,
) -> Result<(), Refusal> {
    let [wanted, avoided] = [use_type, avoid_type].map(|key| Some((key, draft.take(key).filter(|it| !it.is_empty())?)));
    if wanted.is_some() && avoided.is_some() {
        draft.warn(format!("annotation {avoid_type}: has no effect beside {use_type}, as with HAMi"));
    }
    set_models(draft, wanted, avoided.filter(|_| wanted.is_none()))
}

fn patterns(types: &str) -> Result<String, &'static str> {
    let mut patterns = Vec::new();
    for name in names(types) {
        if name.contains('*') {
            return Err("has a *, which is no part of a model's name");
        }
        patterns.push(format!("*{name}*"));
        // A type that is spelled out begins with the vendor, which the model's own name needn't.
        let prefix = name.get(..VENDOR.len()).filter(|prefix| prefix.eq_ignore_ascii_case(VENDOR));
        if prefix.is_some() {
            patterns.push(format!("{}*", &name[VENDOR.len()..]));
        }
    }
    Ok(patterns.join(","))
}

/// The GPUs that one annotation lists, and not those that another one does.
pub(crate) fn set_cards(draft: &mut Draft<'_>, wanted: &'static str, avoided: &'static str) -> Result<(), Refusal> {
    for (theirs, ours) in [(wanted, CARD_UUID), (avoided, AVOID_CARD_UUID)] {
        let uuids = draft.take(theirs).map(|list| names(list).collect::<Vec<_>>()).unwrap_or_default();
        if !uuids.is_empty() {
            draft.set(ours, uuids.join(","), &format!("annotation {theirs}"))?;
        }
    }
    Ok(())
}

/// Names of a list, which may have blanks and nothing between its commas.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// How the pod's parts are to be enforced.
pub(crate) fn set_mode(draft: &mut Draft<'_>, key: &'static str) -> Result<(), Refusal> {
    let tier = match draft.take(key) {
        None => return Ok(()),
        Some("hami-core") => "shim",
        Some("mig") => "mig",
        Some("mps") => "mps",
        Some(_) => return Err(draft.refuse(key, "is unknown: expected hami-core, mig or mps")),
    };
    draft.set(TIER, tier, &format!("annotation {key}"))
}

/// Idle compute beyond what the pod requests, which `source` asks for, and one of Divvy's annotations gives.
pub(crate) fn set_idle_compute(
    draft: &mut Draft<'_>,
    ours: &'static str,
    value: impl Into<String>,
    source: &str,
) -> Result<(), Refusal> {
    if draft.context.is_favoured {
        return draft.set(ours, value, source);
    }
    draft.warn(format!(
        "{source}: not kept: the namespace is not in favouredNamespaces, so its pods use no more compute than they request"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_match_where_they_do_there() {
        assert_eq!(patterns("A10"), Ok("*A10*".to_owned()));
        assert_eq!(patterns("A100-SXM4-40, Tesla"), Ok("*A100-SXM4-40*,*Tesla*".to_owned()));
        assert_eq!(patterns("NVIDIA-NVIDIA A100"), Ok("*NVIDIA-NVIDIA A100*,NVIDIA A100*".to_owned()));
        assert_eq!(patterns(" , "), Ok(String::new()));
        assert!(patterns("A*").is_err());
    }
}

//! Strategic merge patches: maps merge, lists merge by their keys, and directives say the rest.

use serde_json::{Map, Value};

use super::shape::{ListType, Shape, key_of};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// The object after the patch.
pub(crate) fn merge(live: Value, patch: &Value, shape: Shape<'_>) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut live = match live {
        Value::Object(live) if patch.get(DIRECTIVE).is_none_or(|directive| directive != "replace") => live,
        _ => Map::new(),
    };
    if let Some(retained) = patch.get(RETAIN).and_then(Value::as_array) {
        live.retain(|field, _| retained.iter().any(|own| own == field));
    }
    for (field, wanted) in patch.iter().filter(|(field, _)| !field.starts_with('$')) {
        let old = live.remove(field).unwrap_or_default();
        match wanted {
            Value::Null => continue,
            Value::Object(inner) if inner.get(DIRECTIVE).is_some_and(|directive| directive == "delete") => continue,
            Value::Array(wanted) => live.insert(field.clone(), merge_lists(old, wanted, shape.field(field))),
            wanted => live.insert(field.clone(), merge(old, wanted, shape.field(field))),
        };
    }
    for (directive, arguments) in patch {
        let arguments = arguments.as_array().map_or(&[][..], Vec::as_slice);
        if let Some(field) = directive.strip_prefix(DELETE) {
            if let Some(list) = live.get_mut(field).and_then(Value::as_array_mut) {
                list.retain(|item| !arguments.contains(item));
            }
        } else if let Some(field) = directive.strip_prefix(ORDER)
            && let Some(list) = live.get_mut(field).and_then(Value::as_array_mut)
        {
            order(list, arguments, &shape.field(field).list_type());
        }
    }
    Value::Object(live)
}

fn merge_lists(live: Value, patch: &[Value], shape: Shape<'_>) -> Value {
    let mut live = if let Value::Array(live) = live { live } else { Vec::new() };
    let replaces = patch.iter().any(|item| item.get(DIRECTIVE).is_some_and(|directive| directive == "replace"));
    let plain = patch.iter().filter(|item| item.get(DIRECTIVE).is_none());
    match shape.list_type() {
        _ if replaces => plain.cloned().collect(),
        ListType::Atomic => plain.cloned().collect(),
        ListType::Set => {
            let new: Vec<_> = plain.filter(|item| !live.contains(item)).cloned().collect();
            live.into_iter().chain(new).collect()
        }
        ListType::Map(keys) => {
            let key = |item: &Value| keys.first().map(|first| key_of(item, first));
            for wanted in patch {
                let at = live.iter().position(|item| key(item) == key(wanted));
                match (wanted.get(DIRECTIVE).and_then(Value::as_str), at) {
                    (Some("delete"), Some(at)) => drop(live.remove(at)),
                    (Some("delete"), None) => {}
                    (_, Some(at)) => live[at] = merge(live[at].take(), wanted, shape.item()),
                    (_, None) => live.push(merge(Value::Null, wanted, shape.item())),
                }
            }
            live.into()
        }
    }
}

/// Brings the named items into the named order, from where the first of them stands; the others stay before or behind.
fn order(list: &mut [Value], wanted: &[Value], list_type: &ListType) {
    let place = |item: &Value| match list_type {
        ListType::Map(keys) => {
            let key = keys.first()?;
            wanted.iter().position(|own| key_of(own, key) == key_of(item, key))
        }
        _ => wanted.iter().position(|own| own == item),
    };
    let mut before = 0;
    // Items that the order doesn't name keep the place of the named one before them.
    let places = list.iter().map(|item| {
        before = place(item).map_or(before, |place| place + 1);
        before
    });
    let places: Vec<usize> = places.collect();
    let mut ranked: Vec<(usize, Value)> = places.into_iter().zip(list.iter_mut().map(Value::take)).collect();
    ranked.sort_by_key(|(place, _)| *place);
    list.iter_mut().zip(ranked).for_each(|(into, (_, item))| *into = item);
}

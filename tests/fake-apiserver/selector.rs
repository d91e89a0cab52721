//! Label and field selectors.

use serde_json::Value;

use super::object::{items, text};
use super::resource::Resource;
use super::status::{Answer, Refusal};

/// What a list or a watch is about.
#[derive(Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, String, bool)>,
}

#[derive(Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

/// Fields that can be selected by, of one kind each; names and namespaces of all kinds can.
const FIELDS: &[(&str, &[&str])] = &[
    (
        "Pod",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.nominatedNodeName",
            "status.phase",
            "status.podIP",
        ],
    ),
    ("Node", &["spec.unschedulable"]),
    ("Namespace", &["status.phase"]),
    ("Secret", &["type"]),
    (
        "Event",
        &[
            "involvedObject.apiVersion",
            "involvedObject.fieldPath",
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.resourceVersion",
            "involvedObject.uid",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
];

// === impl Selector ===

impl Selector {
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Answer<Self> {
        let bad = |why: String| {
            let (version, plural) = (resource.api_version(), &resource.plural);
            let slash = if resource.group.is_empty() { "/" } else { "" };
            Refusal::bad_request(format!(
                "Unable to find \"{slash}{version}, Resource={plural}\" that match label selector \"{labels}\", \
                 field selector \"{fields}\": {why}"
            ))
        };
        let labels: Result<_, _> = split_outside(labels).map(|one| Requirement::parse(one.trim())).collect();
        let parsed = fields.split(',').filter(|one| !one.trim().is_empty()).map(|one| field(resource, one.trim()));
        let parsed: Result<_, _> = parsed.collect();
        Ok(Self { labels: labels.map_err(bad)?, fields: parsed.map_err(bad)? })
    }

    /// A `LabelSelector`; one that isn't understood selects nothing.
    pub(crate) fn of_labels(selector: &Value) -> Option<Self> {
        let equal = selector["matchLabels"].as_object().into_iter().flatten().map(|(key, value)| {
            Some(Requirement { key: key.clone(), test: Test::In(vec![value.as_str()?.to_owned()]) })
        });
        let expressions = items(selector, "/matchExpressions").iter().map(|expression| {
            let values = items(expression, "/values").iter().filter_map(Value::as_str).map(String::from).collect();
            let test = match text(expression, "/operator") {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Absent,
                _ => return None,
            };
            Some(Requirement { key: text(expression, "/key").to_owned(), test })
        });
        Some(Self { labels: equal.chain(expressions).collect::<Option<_>>()?, fields: Vec::new() })
    }

    /// The only name that is selected; empty if there may be others.
    pub(crate) fn name(&self) -> &str {
        let mut names = self.fields.iter().filter(|(pointer, _, equal)| pointer == "/metadata/name" && *equal);
        names.next().map_or("", |(_, name, _)| name)
    }

    /// Whether an object as it is kept is selected.
    pub(crate) fn takes(&self, object: &Value) -> bool {
        let label = |key: &str| object.get("metadata")?.get("labels")?.get(key)?.as_str();
        self.labels.iter().all(|own| own.holds(label(&own.key)))
            && self.fields.iter().all(|(pointer, value, equal)| (field_text(object, pointer) == *value) == *equal)
    }
}

/// A field as text; what isn't there selects as empty, and `unschedulable` as false.
fn field_text(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        None if pointer == "/spec/unschedulable" => "false".to_owned(),
        Some(Value::Bool(value)) => value.to_string(),
        // The component is what an event's source is selected by.
        Some(Value::Object(_)) => text(object, &format!("{pointer}/component")).to_owned(),
        _ => text(object, pointer).to_owned(),
    }
}

/// One of `a=b`, `a==b`, `a!=b`, as a JSON pointer, a value and whether it should be equal.
fn field(resource: &Resource, selector: &str) -> Result<(String, String, bool), String> {
    let (path, value, equal) = match (selector.split_once("!="), selector.split_once('=')) {
        (Some((path, value)), _) => (path, value, false),
        (None, Some((path, value))) => (path, value.trim_start_matches('='), true),
        (None, None) => return Err(format!("invalid selector: '{selector}'; can't understand '{selector}'")),
    };
    let of_kind = FIELDS.iter().filter(|(kind, _)| *kind == resource.kind && !resource.is_custom());
    let known = of_kind.flat_map(|(_, fields)| *fields).any(|own| *own == path);
    if !known && !matches!(path, "metadata.name" | "metadata.namespace") {
        return Err(format!("field label not supported: {path}"));
    }
    Ok((format!("/{}", path.replace('.', "/")), value.to_owned(), equal))
}

/// The parts between commas that aren't in parentheses.
fn split_outside(selector: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    let parts = selector.split(move |letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty())
}

// === impl Requirement ===

impl Requirement {
    fn parse(text: &str) -> Result<Self, String> {
        let new = |key: &str, test: Test| {
            let key = key.trim().to_owned();
            let sound = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
            if sound { Ok(Self { key, test }) } else { Err(format!("unable to parse requirement: {text}")) }
        };
        let set = |values: &str| {
            let inner = values.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            let values = inner.ok_or_else(|| format!("unable to parse requirement: {text}"))?;
            Ok::<_, String>(values.split(',').map(|value| value.trim().to_owned()).collect())
        };
        let number =
            |value: &str| value.trim().parse().map_err(|_error| format!("unable to parse requirement: {text}"));
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or_default();
        let rest = rest.trim();
        if let Some(values) = rest.strip_prefix("notin") {
            new(first, Test::NotIn(set(values)?))
        } else if let Some(values) = rest.strip_prefix("in") {
            new(first, Test::In(set(values)?))
        } else if let Some((key, value)) = text.split_once("!=") {
            new(key, Test::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = text.split_once('=') {
            new(key, Test::In(vec![value.trim_start_matches('=').trim().to_owned()]))
        } else if let Some((key, value)) = text.split_once('>') {
            new(key, Test::Above(number(value)?))
        } else if let Some((key, value)) = text.split_once('<') {
            new(key, Test::Below(number(value)?))
        } else if let Some(key) = text.strip_prefix('!') {
            new(key, Test::Absent)
        } else {
            new(text, Test::Exists)
        }
    }

    fn holds(&self, label: Option<&str>) -> bool {
        let number = label.and_then(|label| label.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => label.is_some_and(|label| values.iter().any(|value| value == label)),
            Test::NotIn(values) => label.is_none_or(|label| values.iter().all(|value| value != label)),
            Test::Exists => label.is_some(),
            Test::Absent => label.is_none(),
            Test::Above(bound) => number.is_some_and(|number| number > *bound),
            Test::Below(bound) => number.is_some_and(|number| number < *bound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_of_a_label_selector_is_understood() {
        let label = |key: &str| match key {
            "a" => Some("1"),
            "b" => Some("two"),
            _ => None,
        };
        let cases = [
            ("a", true),
            ("!a", false),
            ("c", false),
            ("!c", true),
            ("a=1", true),
            ("a==1", true),
            ("a!=1", false),
            ("c!=1", true),
            ("a in (1, 2)", true),
            ("a in(2)", false),
            ("b notin (one,three)", true),
            ("b notin(two)", false),
            ("a > 0", true),
            ("a<1", false),
        ];
        for (selector, taken) in cases {
            let requirement = Requirement::parse(selector).unwrap();
            assert_eq!(requirement.holds(label(&requirement.key)), taken, "{selector}");
        }
        assert_eq!(split_outside("a in (1,2),b!=3,!c").collect::<Vec<_>>(), ["a in (1,2)", "b!=3", "!c"]);
        assert!(Requirement::parse("a in 1,2").is_err());
    }
}

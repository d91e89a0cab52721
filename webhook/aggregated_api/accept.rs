//! Which form of the objects a client accepts.

use axum::http::{HeaderMap, StatusCode, header};

use super::status::StatusError;

const NOT_ACCEPTABLE: &str = "only application/json is served, as objects or as=Table;v=v1;g=meta.k8s.io";

/// Form of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The objects themselves.
    Objects,
    /// nvidia-gpu-scheduler's lines.
    Legacy,
    /// `Table`s of `meta.k8s.io/v1`, for kubectl.
    Tables(Include),
}

/// What a row has of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// The metadata.
    Metadata,
    /// All of it.
    Object,
}

// === impl Form ===

impl Form {
    /// The first of the client's forms that is served. Clients name those that they like best first; weights aren't looked at,
    /// as nowhere in Kubernetes.
    pub fn accepted(headers: &HeaderMap, include: Option<&str>) -> Result<Self, StatusError> {
        let texts: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        if texts.is_empty() {
            return Ok(Self::Objects);
        }
        let forms =
            texts.iter().flat_map(|text| text.split(',')).filter_map(|media| Self::of_media_type(media, include));
        forms.into_iter().next().unwrap_or_else(|| Err(StatusError::new(StatusCode::NOT_ACCEPTABLE, NOT_ACCEPTABLE)))
    }

    /// None: not served.
    fn of_media_type(media: &str, include: Option<&str>) -> Option<Result<Self, StatusError>> {
        let mut parts = media.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
            return None;
        }
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let value = |key| parameters.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        match (value("as"), value("g"), value("v")) {
            (None, _, _) => Some(Ok(Self::Objects)),
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) => Some(Include::read(include).map(Self::Tables)),
            _ => None,
        }
    }
}

// === impl Include ===

impl Include {
    fn read(text: Option<&str>) -> Result<Self, StatusError> {
        match text {
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::None),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(StatusError::bad_request(format!(
                "includeObject {other:?}: supported values: \"Metadata\", \"None\", \"Object\""
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn accepted(text: &str) -> Result<Form, StatusError> {
        let value = HeaderValue::from_str(text).expect("a header");
        Form::accepted(&HeaderMap::from_iter([(header::ACCEPT, value)]), None)
    }

    #[test]
    fn first_served_form_is_chosen() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(accepted(kubectl), Ok(Form::Tables(Include::Metadata)));
        assert_eq!(accepted("application/vnd.kubernetes.protobuf,application/json"), Ok(Form::Objects));
        assert_eq!(accepted("application/json;as=Table;v=v1beta1;g=meta.k8s.io, */*"), Ok(Form::Objects));
        assert_eq!(accepted("text/html").expect_err("not served").code.as_u16(), 406);
        assert_eq!(Form::accepted(&HeaderMap::new(), None), Ok(Form::Objects));
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(table))]);
        assert_eq!(Form::accepted(&headers, Some("Object")), Ok(Form::Tables(Include::Object)));
        assert_eq!(Form::accepted(&headers, Some("Everything")).expect_err("unknown").code.as_u16(), 400);
    }
}

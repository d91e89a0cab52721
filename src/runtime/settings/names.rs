//! Names of objects.

use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// Name of an object of the API server: a DNS subdomain (RFC 1123). Some kinds allow less; the API server says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ObjectName(String);

// === impl ObjectName ===

impl ObjectName {
    /// A default.
    pub fn new(name: &'static str) -> Self {
        Self(name.to_owned())
    }
}

impl TryFrom<String> for ObjectName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if is_subdomain(&text) {
            return Ok(Self(text));
        }
        Err(format!("\"{text}\" is not an object's name: expected at most 253 lower-case letters, digits, '-' and '.'"))
    }
}

impl Deref for ObjectName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// RFC 1123, as Kubernetes reads it.
fn is_subdomain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| label.starts_with(plain) && label.ends_with(plain);
    text.len() <= 253 && text.split('.').all(label) && text.chars().all(|c| plain(c) || c == '-' || c == '.')
}

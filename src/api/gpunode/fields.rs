//! Fields of an object of which some may be unknown, missing or unreadable.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// One object on the way to its fields.
pub(super) struct Fields<'a> {
    pub(super) object: &'a Value,
    /// With a dot at its end, for messages.
    pub(super) path: String,
    pub(super) unread: &'a mut Vec<String>,
}

// === impl Fields ===

impl Fields<'_> {
    /// The field; `None` where there is none or where it can't be read.
    pub(super) fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.object.get(name).filter(|value| !value.is_null())?;
        let read = T::deserialize(value);
        read.map_err(|error| self.unread.push(format!("{}{name}: {error}", self.path))).ok()
    }

    /// A field that every version writes.
    pub(super) fn required<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        if self.object.get(name).is_none_or(Value::is_null) {
            self.unread.push(format!("{}{name} is missing", self.path));
        }
        self.optional(name)
    }

    /// The items of a list of objects, but for those that say too little.
    pub(super) fn each<T>(&mut self, name: &str, read: impl Fn(Fields<'_>) -> Option<T>) -> Vec<T> {
        let empty = Vec::new();
        let items = match self.object.get(name) {
            Some(Value::Array(items)) => items,
            None | Some(Value::Null) => &empty,
            Some(_) => {
                self.unread.push(format!("{}{name}: expected a list", self.path));
                &empty
            }
        };
        let path = |at: usize| format!("{}{name}[{at}].", self.path);
        let items = items.iter().enumerate();
        items.filter_map(|(at, object)| read(Fields { object, path: path(at), unread: self.unread })).collect()
    }
}

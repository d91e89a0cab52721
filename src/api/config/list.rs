//! Lists: `[a, b]` in the file, `a,b` wherever there is only text.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, Error, IntoDeserializer, SeqAccess, Visitor, value};
use serde::{Deserialize, Deserializer, Serialize};

/// Values in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct List<T>(pub Vec<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Items(PhantomData))
    }
}

struct Items<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Visitor<'de> for Items<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list such as [a, b] or \"a,b\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<List<T>, E> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(|item| from_text(item).map_err(E::custom)).collect::<Result<_, _>>().map(List)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(List(list))
    }
}

/// A value as flags and variables spell it: the text that would stand in the file.
pub fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, value::Error> {
    let text: StrDeserializer<'_, value::Error> = text.into_deserializer();
    T::deserialize(text)
}

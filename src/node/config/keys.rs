//! One list of keys, from which file, flags, environment, defaults and the printed form are made.

use std::ffi::OsString;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};

use super::ConfigError;

/// Makes [`Keys`](super::Keys) and [`Config`](super::Config) of lines `name: Type = default`.
///
/// A default may use the keys above it, and may `return` an error. A key without one is optional in `Config` too.
macro_rules! keys {
    ($( $(#[doc = $doc:literal])+ $name:ident: $type:ty $(= $default:expr)?, )+) => {
        /// What one source says of each key; nothing, for most.
        #[derive(Clone, Debug, Default, clap::Args, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct Keys {
            #[arg(skip)]
            version: Option<Version>,
            /// Of an entry of `overrides`, and only there.
            #[arg(skip)]
            selector: Option<Selector>,
            /// Keys of nodes with certain labels. Only in the file.
            #[arg(skip)]
            overrides: Vec<Keys>,
            $(
                $(#[doc = $doc])+
                #[arg(long, value_parser = keys::from_text::<$type>)]
                pub $name: Option<$type>,
            )+
        }

        /// The effective configuration.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct Config {
            $( $(#[doc = $doc])+ pub $name: keys::keys!(@plain $type $(, $default)?), )+
        }

        impl Keys {
            /// What the environment says; an empty variable is an unset one.
            pub fn from_env(env: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
                Ok(Self { $( $name: keys::from_variable(&env, stringify!($name))?, )+ ..Self::default() })
            }

            /// This source's keys, and `weaker`'s for those that it doesn't name; no overrides.
            #[must_use]
            pub fn or(self, weaker: Self) -> Self {
                Self { $( $name: self.$name.or(weaker.$name), )+ ..Self::default() }
            }

            fn resolve(self) -> Result<Config, ConfigError> {
                $( let $name = keys::keys!(@value self.$name $(, $default)?); )+
                Ok(Config { $( $name, )+ })
            }
        }
    };
    (@plain $type:ty) => { Option<$type> };
    (@plain $type:ty, $default:expr) => { $type };
    (@value $given:expr) => { $given };
    (@value $given:expr, $default:expr) => { match $given { Some(value) => value, None => $default } };
}

pub(super) use keys;

/// A value as flags and variables spell it: the text that would stand in the file.
pub(super) fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let text: StrDeserializer<'_, Error> = text.into_deserializer();
    T::deserialize(text)
}

pub(super) fn from_variable<T: DeserializeOwned>(
    env: impl Fn(&str) -> Option<OsString>,
    key: &str,
) -> Result<Option<T>, ConfigError> {
    let name = key.to_uppercase();
    let Some(value) = env(&name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let parsed = match value.to_str() {
        Some(text) => from_text(text).map_err(|error| error.to_string()),
        None => Err("not UTF-8".to_owned()),
    };
    parsed.map(Some).map_err(|problem| ConfigError::Environment { name, value, problem })
}

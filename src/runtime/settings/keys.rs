//! One list of keys, from which file, flags, environment, defaults and the printed form are made.

use std::ffi::OsString;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::settings::{ConfigError, Version, from_text};

/// Values that one source has for a program's keys; most are absent. [`keys!`](crate::keys!) implements it.
pub trait KeySet: Clone + Default + for<'de> Deserialize<'de> {
    /// Every key with its value.
    type Config: Serialize;

    /// Values from the environment; an empty variable is an unset one.
    fn from_env(env: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError>;

    /// This source's keys, and `weaker`'s for those that it doesn't name; nothing of what stands in files only.
    #[must_use]
    fn or(self, weaker: Self) -> Self;

    /// The configuration that the keys make: absent ones take their defaults. The program compares what must agree.
    fn resolve(self) -> Result<Self::Config, ConfigError>;

    /// Hints for help, by the key in snake case: default, or required.
    fn hints() -> Vec<(&'static str, String)>;

    /// The version that the file states.
    fn version(&self) -> Option<Version>;
}

/// Makes `Keys`, which is a [`KeySet`], and `Config` of lines `name: Type = default`, each below its help text.
///
/// A default may use the keys above it. A key without one is optional in `Config` too, unless it stands in `required`. In
/// front there may be fields that only the file has; the program that declares them checks and uses them.
///
/// `include` names lists of keys that the cluster's programs share, such as `divvy_api::gpu_keys`, which come before the program's
/// own. `Keys` is then made of a [`ClusterConfig`](crate::settings::ClusterConfig) too, and `Config::cluster` gives one.
///
/// ```text
/// divvy_runtime::keys! {
///     file {
///         /// Keys of nodes with certain labels.
///         overrides: Vec<Keys>,
///     }
///     required {
///         /// Name of this node
///         node_name: ObjectName,
///     }
///     /// Most containers that can share a GPU
///     slots_per_card: Within<1, 256> = Within::new(32),
///     /// Kubeconfig of the API server
///     kubeconfig: AbsolutePath,
/// }
/// ```
#[macro_export]
macro_rules! keys {
    (file $file:tt required $required:tt include [$($lists:tt)+] $($own:tt)*) => {
        $crate::keys! { @with {} [$($lists)+] file $file required $required $($own)* }
    };
    (@with { $($keys:tt)* } [$($list:ident)::+ $(, $($more:tt)+)?] $($own:tt)*) => {
        $($list)::+! { [$crate::keys] { $($keys)* } [$($($more)+)?] $($own)* }
    };
    (@with { $($keys:tt)* } [] file $file:tt required $required:tt $($own:tt)*) => {
        $crate::keys! { file $file required $required $($keys)* $($own)* }
        $crate::keys! { @cluster $($keys)* }
    };
    (@cluster $( $(#[doc = $doc:literal])+ $name:ident: $type:ty $(= $default:expr)?, )+) => {
        impl From<$crate::settings::ClusterConfig> for Keys {
            fn from(cluster: $crate::settings::ClusterConfig) -> Self {
                Self { $( $name: $crate::keys!(@stated cluster.$name $(, $default)?), )+ ..Self::default() }
            }
        }

        impl Config {
            /// The keys that the cluster's programs share; those that this one doesn't have are as by default.
            #[allow(clippy::needless_update, reason = "a program may have all of them")]
            pub fn cluster(&self) -> $crate::settings::ClusterConfig {
                let absent = $crate::settings::ClusterConfig::default();
                $crate::settings::ClusterConfig { $( $name: self.$name.clone(), )+ ..absent }
            }
        }
    };
    (@stated $value:expr) => { $value };
    (@stated $value:expr, $default:expr) => { Some($value) };
    (
        $( file { $( $(#[doc = $of_file:literal])+ $field:ident: $field_type:ty, )+ } )?
        $( required { $( $(#[doc = $of_required:literal])+ $required:ident: $required_type:ty, )+ } )?
        $( $(#[doc = $doc:literal])+ $name:ident: $type:ty $(= $default:expr)?, )+
    ) => {
        /// Values that one source has for the keys; most are absent.
        #[derive(Clone, Debug, Default, clap::Args, serde::Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct Keys {
            #[arg(skip)]
            version: Option<$crate::settings::Version>,
            $($(
                $(#[doc = $of_file])+
                #[arg(skip)]
                $field: $field_type,
            )+)?
            $($(
                $(#[doc = $of_required])+
                #[arg(long, value_parser = $crate::settings::from_text::<$required_type>)]
                pub $required: Option<$required_type>,
            )+)?
            $(
                $(#[doc = $doc])+
                #[arg(long, value_parser = $crate::settings::from_text::<$type>)]
                pub $name: Option<$type>,
            )+
        }

        /// The effective configuration.
        #[derive(Clone, Debug, PartialEq, serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct Config {
            $($( $(#[doc = $of_required])+ pub $required: $required_type, )+)?
            $( $(#[doc = $doc])+ pub $name: $crate::keys!(@plain $type $(, $default)?), )+
        }

        impl Config {
            /// The configuration as a file that would say the same.
            pub fn to_yaml(&self) -> String {
                $crate::settings::to_yaml(self)
            }
        }

        impl $crate::settings::KeySet for Keys {
            type Config = Config;

            fn from_env(env: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<Self, $crate::settings::ConfigError> {
                Ok(Self {
                    $($( $required: $crate::settings::keys::from_variable(&env, stringify!($required))?, )+)?
                    $( $name: $crate::settings::keys::from_variable(&env, stringify!($name))?, )+
                    ..Self::default()
                })
            }

            fn or(self, weaker: Self) -> Self {
                Self {
                    $($( $required: self.$required.or(weaker.$required), )+)?
                    $( $name: self.$name.or(weaker.$name), )+
                    ..Self::default()
                }
            }

            fn resolve(self) -> Result<Config, $crate::settings::ConfigError> {
                $($(
                    let $required =
                        self.$required.ok_or($crate::settings::ConfigError::Missing { key: stringify!($required) })?;
                )+)?
                $( let $name = $crate::keys!(@value self.$name $(, $default)?); )+
                Ok(Config { $($( $required, )+)? $( $name, )+ })
            }

            fn hints() -> Vec<(&'static str, String)> {
                $( let $name: $crate::keys!(@plain $type $(, $default)?) = $crate::keys!(@absent $($default)?); )+
                vec![
                    $($( (stringify!($required), "[required]".to_owned()), )+)?
                    $( (stringify!($name), $crate::settings::keys::hint(&$name)), )+
                ]
            }

            fn version(&self) -> Option<$crate::settings::Version> {
                self.version
            }
        }
    };
    (@plain $type:ty) => { Option<$type> };
    (@plain $type:ty, $default:expr) => { $type };
    (@value $given:expr) => { $given };
    (@value $given:expr, $default:expr) => { match $given { Some(value) => value, None => $default } };
    (@absent) => { None };
    (@absent $default:expr) => { $default };
}

/// The value of a key in snake case, if its variable is set to any.
pub fn from_variable<T: DeserializeOwned>(
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

/// A default for help, as flags spell it; nothing for none.
pub fn hint(default: &impl Serialize) -> String {
    let text = match serde_json::to_value(default).expect("texts, numbers and lists always serialise") {
        Value::Null => String::new(),
        Value::String(text) => text,
        Value::Array(items) => items.iter().map(Value::to_string).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    };
    if text.is_empty() { text } else { format!("[default: {text}]") }
}

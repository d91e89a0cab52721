//! `memoryOverride`: memory of GPUs of which NVML reports none.

use std::fmt;

use divvy_api::Memory;
use divvy_api::quantity::parse_memory;
use divvy_placement::{is_model_pattern, matches_model};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Memory of the GPUs of a model: a map in the file, `MODEL=MEMORY` wherever there is only text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "Entry")]
pub struct MemoryOverride {
    /// Pattern of product names, as in `divvy.dev/card-model`.
    pub model: String,
    /// Memory that can be allocated of each GPU; more than none.
    pub memory: Memory,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    model: String,
    memory: String,
}

struct Either;

/// Memory of a GPU of this product name by the configuration. Of several entries that match, the last one counts.
pub fn memory_of(overrides: &[MemoryOverride], model: &str) -> Option<Memory> {
    overrides.iter().rfind(|entry| matches_model(&entry.model, model)).map(|entry| entry.memory)
}

// === impl MemoryOverride ===

impl<'de> Deserialize<'de> for MemoryOverride {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

impl From<MemoryOverride> for Entry {
    fn from(MemoryOverride { model, memory }: MemoryOverride) -> Self {
        Self { model, memory: memory.to_string() }
    }
}

impl TryFrom<Entry> for MemoryOverride {
    type Error = String;

    fn try_from(Entry { model, memory }: Entry) -> Result<Self, String> {
        if !is_model_pattern(&model) {
            return Err(format!(
                "model \"{model}\" matches no GPU: write it as nvidia-smi -L does, such as NVIDIA GB10"
            ));
        }
        match parse_memory(&memory) {
            Ok(amount) if !amount.is_zero() => Ok(Self { model, memory: amount }),
            Ok(_zero) => Err(format!("model {model}: memory 0: expected an amount such as 110Gi")),
            Err(problem) => Err(format!("model {model}: memory {problem}")),
        }
    }
}

// === impl Either ===

impl<'de> Visitor<'de> for Either {
    type Value = MemoryOverride;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("model and memory, or a text such as \"NVIDIA GB10=110Gi\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<MemoryOverride, E> {
        // A pattern may begin with "=".
        let (model, memory) = text
            .rsplit_once('=')
            .ok_or_else(|| E::custom(format!("\"{text}\" is not MODEL=MEMORY, such as NVIDIA GB10=110Gi")))?;
        let entry = Entry { model: model.trim().to_owned(), memory: memory.trim().to_owned() };
        entry.try_into().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<MemoryOverride, A::Error> {
        Entry::deserialize(MapAccessDeserializer::new(map))?.try_into().map_err(A::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use divvy_runtime::settings::{List, from_text};

    use super::*;

    #[test]
    fn last_entry_that_matches_the_model_counts() {
        let overrides: List<MemoryOverride> =
            from_text("GB10=110Gi,NVIDIA Thor = 64000, =NVIDIA GB10=8Gi").expect("valid");
        let of = |model| memory_of(&overrides.0, model).map(Memory::as_mib);
        assert_eq!(
            ["NVIDIA GB10", "NVIDIA GB10 Max", "NVIDIA Thor", "NVIDIA GB100"].map(of),
            [Some(8 << 10), Some(110 << 10), Some(64_000), None]
        );
    }

    #[test]
    fn entry_that_can_match_nothing_is_refused() {
        let refused = |text: &str| from_text::<List<MemoryOverride>>(text).expect_err(text).to_string();
        insta::assert_snapshot!(refused("GB10"), @r#""GB10" is not MODEL=MEMORY, such as NVIDIA GB10=110Gi"#);
        insta::assert_snapshot!(refused(" - =8Gi"), @r#"model "-" matches no GPU: write it as nvidia-smi -L does, such as NVIDIA GB10"#);
        insta::assert_snapshot!(refused("==8Gi"), @r#"model "=" matches no GPU: write it as nvidia-smi -L does, such as NVIDIA GB10"#);
        insta::assert_snapshot!(refused("GB10=0"), @"model GB10: memory 0: expected an amount such as 110Gi");
        insta::assert_snapshot!(refused("GB10=110G"), @r#"model GB10: memory "110G" is ambiguous: did you mean "110Gi"?"#);
        insta::assert_snapshot!(refused("GB10="), @r#"model GB10: memory "" is not a quantity: expected a number such as 8, 8192Mi or 8Gi"#);
    }
}

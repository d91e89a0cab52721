//! Oversubscription of GPU memory, which two keys switch on together.

use std::fs;
use std::path::Path;

use divvy_api::gpunode::{Oversubscription, Scales};
use divvy_api::{Memory, Tier};

use super::{Advertise, Config, ConfigError, MemoryAmount, Scale};

const MEMINFO: &str = "/proc/meminfo";

// === impl Config ===

impl Config {
    /// Parts of each GPU that can be allocated. More memory than a GPU's is allocated by [`Self::oversubscription`] alone.
    pub fn scales(&self) -> Scales {
        Scales { memory: self.memory_scale.percent().min(100), cores: self.cores_scale.percent() }
    }

    /// How the node oversubscribes memory, if it does.
    pub fn oversubscription(&self) -> Option<Oversubscription> {
        let memory_scale = self.memory_scale.percent();
        let host_memory = self.oversubscribe_host_memory.get();
        (memory_scale > 100).then_some(Oversubscription { memory_scale, host_memory })
    }

    /// Refuses keys that don't go together, and more host memory than this node has.
    pub(crate) fn check_oversubscription(&self) -> Result<(), ConfigError> {
        self.check_oversubscription_on(Path::new(MEMINFO))
    }

    fn check_oversubscription_on(&self, meminfo: &Path) -> Result<(), ConfigError> {
        let is_scaled = self.memory_scale.percent() > Scale::ONE.percent();
        let has_host_memory = self.oversubscribe_host_memory != MemoryAmount::NONE;
        let problem = match (is_scaled, has_host_memory) {
            (false, false) => return Ok(()),
            (true, false) => {
                "nothing holds what the GPUs don't: set oversubscribeHostMemory to an amount such as 64Gi, or memoryScale to \
                 1 or less"
                    .to_owned()
            }
            (false, true) => "set memoryScale above 1, or oversubscribeHostMemory to 0".to_owned(),
            _ if self.tier.named() != Some(Tier::Shim) => {
                "only tier shim limits what a container has in host memory: set tier to shim, or memoryScale to 1 and \
                 oversubscribeHostMemory to 0"
                    .to_owned()
            }
            _ if self.advertise == Advertise::Devices => {
                "devices are units of the GPUs' own memory: set advertise to amounts, or memoryScale to 1 and \
                 oversubscribeHostMemory to 0"
                    .to_owned()
            }
            _ => return self.check_host_memory(meminfo),
        };
        let host_memory = String::from(self.oversubscribe_host_memory);
        Err(ConfigError::Disagreement(format!(
            "memoryScale {} and oversubscribeHostMemory {host_memory}: {problem}",
            f64::from(self.memory_scale)
        )))
    }

    fn check_host_memory(&self, meminfo: &Path) -> Result<(), ConfigError> {
        let wanted = self.oversubscribe_host_memory.get();
        let problem = match fs::read_to_string(meminfo).map(|text| mem_total(&text)) {
            Ok(Some(total)) if wanted <= total => return Ok(()),
            Ok(Some(total)) => format!("more than the node's {total}: leave enough for everything that runs there"),
            Ok(None) => format!("{} has no MemTotal to compare it with", meminfo.display()),
            Err(error) => format!("{}: {error}", meminfo.display()),
        };
        Err(ConfigError::Disagreement(format!("oversubscribeHostMemory {wanted}: {problem}")))
    }
}

/// Physical memory, in kB in the file.
fn mem_total(meminfo: &str) -> Option<Memory> {
    let amount = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = amount.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Memory::mib(kib >> 10))
}

#[cfg(test)]
mod tests {
    use divvy_runtime::settings::KeySet as _;

    use super::*;
    use crate::config::Keys;

    fn problem(keys: &[(&str, &str)], meminfo: &str) -> Option<String> {
        let env = |name: &str| match keys.iter().find(|(key, _)| *key == name) {
            Some((_, value)) => Some(value.into()),
            None => (name == "NODE_NAME").then(|| "n1".into()),
        };
        let config = Keys::from_env(env).and_then(Keys::into_config).expect("each key is valid");
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), meminfo).expect("written");
        config.check_oversubscription_on(file.path()).err().map(|error| error.to_string())
    }

    #[test]
    fn both_keys_are_needed_and_tier_shim() {
        let of =
            |keys: &[(&str, &str)]| problem(keys, "MemFree:  1 kB\nMemTotal:       67108864 kB\n").unwrap_or_default();
        let (scale, host) = (("MEMORY_SCALE", "1.5"), ("OVERSUBSCRIBE_HOST_MEMORY", "64Gi"));
        let shim = ("TIER", "shim");
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[("MEMORY_SCALE", "0.5"), ("TIER", "mps")]), "", "it reserves a part of each GPU");
        assert_eq!(of(&[scale, host, shim]), "");
        insta::assert_snapshot!(of(&[scale, shim]), @"memoryScale 1.5 and oversubscribeHostMemory 0: nothing holds what the GPUs don't: set oversubscribeHostMemory to an amount such as 64Gi, or memoryScale to 1 or less");
        insta::assert_snapshot!(of(&[host, shim]), @"memoryScale 1 and oversubscribeHostMemory 64Gi: set memoryScale above 1, or oversubscribeHostMemory to 0");
        insta::assert_snapshot!(of(&[scale, host]), @"memoryScale 1.5 and oversubscribeHostMemory 64Gi: only tier shim limits what a container has in host memory: set tier to shim, or memoryScale to 1 and oversubscribeHostMemory to 0");
        insta::assert_snapshot!(of(&[scale, host, shim, ("ADVERTISE", "devices")]), @"memoryScale 1.5 and oversubscribeHostMemory 64Gi: devices are units of the GPUs' own memory: set advertise to amounts, or memoryScale to 1 and oversubscribeHostMemory to 0");
        insta::assert_snapshot!(of(&[scale, ("OVERSUBSCRIBE_HOST_MEMORY", "65537Mi"), shim]), @"oversubscribeHostMemory 65537Mi: more than the node's 64Gi: leave enough for everything that runs there");
    }

    #[test]
    fn unreadable_physical_memory_is_no_permission() {
        let keys = [("MEMORY_SCALE", "1.5"), ("OVERSUBSCRIBE_HOST_MEMORY", "1Mi"), ("TIER", "shim")];
        for text in ["", "MemTotal:", "MemTotal: many kB", "MemTotal: 1"] {
            assert!(problem(&keys, text).is_some_and(|problem| problem.ends_with("to compare it with")), "{text:?}");
        }
    }
}

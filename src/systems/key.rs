//! Keys of annotations by which a pod requests a GPU without any resource.

use std::fmt;

/// Key of one annotation, or of one for every container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// This one.
    Is(&'static str),
    /// Those that begin with the first text and have the second behind a container's name:
    /// `nvidia.com/container.main.gpu-memory.limit`.
    OfContainer(&'static str, &'static str),
}

// === impl Key ===

impl Key {
    /// Whether a pod's annotation has it. The match conditions say the same in CEL.
    pub(crate) fn matches(self, key: &str) -> bool {
        match self {
            Self::Is(whole) => key == whole,
            Self::OfContainer(start, infix) => key.starts_with(start) && key.contains(infix),
        }
    }

    /// Texts that match conditions have for it.
    pub fn texts(self) -> impl Iterator<Item = &'static str> {
        let texts = match self {
            Self::Is(whole) => [Some(whole), None],
            Self::OfContainer(start, infix) => [Some(start), Some(infix)],
        };
        texts.into_iter().flatten()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(whole) => f.write_str(whole),
            Self::OfContainer(start, infix) => write!(f, "{start}CONTAINER{infix}…"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_container_has_both_texts() {
        let (whole, of_container) = (Key::Is("gpu-memory"), Key::OfContainer("nvidia.cdi.k8s.io/", ".gpu-memory."));
        assert!(whole.matches("gpu-memory") && !whole.matches("gpu-memory.limit") && !whole.matches("my/gpu-memory"));
        assert!(of_container.matches("nvidia.cdi.k8s.io/main.gpu-memory.limit"));
        for other in [
            "nvidia.cdi.k8s.io/container.main",
            "nvidia.cdi.k8s.io/container.gpu-memory",
            "nvidia.cdi.k8s.io/gpu-memory.limit",
            "example.com/main.gpu-memory.limit",
        ] {
            assert!(!of_container.matches(other), "{other}");
        }
        assert_eq!(of_container.to_string(), "nvidia.cdi.k8s.io/CONTAINER.gpu-memory.…");
    }
}

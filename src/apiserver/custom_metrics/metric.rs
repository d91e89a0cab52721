//! The metrics that are served: names, meanings, and values as Kubernetes' quantities. Pure.

use super::samples::{Measured, Usage};

/// A metric of a pod, or of all pods of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Memory in use.
    MemoryUsedBytes,
    /// Memory in use, of the share.
    MemoryUsedRatio,
    /// Compute in use.
    ComputeUsed,
    /// Compute in use, of the share.
    ComputeUsedRatio,
}

// === impl Metric ===

impl Metric {
    /// Every one.
    pub const ALL: [Self; 4] =
        [Self::MemoryUsedBytes, Self::MemoryUsedRatio, Self::ComputeUsed, Self::ComputeUsedRatio];

    /// The metric of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.as_str() == name)
    }

    /// Name in paths and in an HPA.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryUsedBytes => "gpu_memory_used_bytes",
            Self::MemoryUsedRatio => "gpu_memory_used_ratio",
            Self::ComputeUsed => "gpu_compute_used",
            Self::ComputeUsedRatio => "gpu_compute_used_ratio",
        }
    }

    /// What it is measured by, if that is known.
    pub fn measured(self, usage: Usage) -> Option<Measured> {
        match self {
            Self::MemoryUsedBytes | Self::MemoryUsedRatio => usage.memory,
            Self::ComputeUsed | Self::ComputeUsedRatio => usage.compute,
        }
    }

    /// The value as a quantity. None for a part of nothing: a share without compute.
    pub fn quantity(self, measured: Measured) -> Option<String> {
        let Measured { used, share, .. } = measured;
        match self {
            Self::MemoryUsedBytes => Some(format!("{used:.0}")),
            Self::ComputeUsed => Some(thousandths(used)),
            Self::MemoryUsedRatio | Self::ComputeUsedRatio => (share > 0.0).then(|| thousandths(used / share)),
        }
    }
}

/// A quantity of at most three decimals, in the form that Kubernetes writes.
fn thousandths(value: f64) -> String {
    let number = format!("{:.0}", value * 1e3);
    match number.strip_suffix("000") {
        Some(whole) if !whole.is_empty() => whole.to_owned(),
        _ if number == "0" => number,
        _ => format!("{number}m"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn quantities_are_in_kubernetes_canonical_form() {
        let quantity = |metric: Metric, used, share| {
            metric.quantity(Measured { used, share, time: SystemTime::UNIX_EPOCH, window: Duration::ZERO })
        };
        for (metric, used, share, wanted) in [
            (Metric::MemoryUsedBytes, 8_589_934_592.0, 1.0, Some("8589934592")),
            (Metric::MemoryUsedBytes, 0.0, 1.0, Some("0")),
            (Metric::MemoryUsedRatio, 3.0, 4.0, Some("750m")),
            (Metric::MemoryUsedRatio, 4.0, 4.0, Some("1")),
            (Metric::ComputeUsed, 0.0, 1.0, Some("0")),
            (Metric::ComputeUsed, 10.0, 16.0, Some("10")),
            (Metric::ComputeUsed, 0.2996, 1.0, Some("300m")),
            (Metric::ComputeUsed, 0.0004, 1.0, Some("0")),
            (Metric::ComputeUsedRatio, 0.55, 0.3, Some("1833m")),
            (Metric::ComputeUsedRatio, 0.55, 0.0, None),
        ] {
            assert_eq!(quantity(metric, used, share).as_deref(), wanted, "{metric:?} {used} of {share}");
        }
    }
}

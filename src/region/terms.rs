//! Terms of isolation: what holds a container to its shares, and what it may use beyond them.
//!
//! Each term has one word, which users write and the limits file, the ledger, `GpuNode`s and metrics repeat.

use core::fmt::{self, Display};
use core::str::FromStr;

#[cfg(test)]
mod tests;

/// Words of which one is expected, for messages: "accounting, shim, mps or mig".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words<'a, W = &'static str>(pub &'a [W]);

/// Makes an enum of variants that are one word each.
macro_rules! words {
    ($(#[$of_type:meta])* pub enum $name:ident { $( $(#[$of_variant:meta])* $variant:ident = $word:literal, )+ }) => {
        $(#[$of_type])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema))]
        pub enum $name {
            $( $(#[$of_variant])* #[cfg_attr(feature = "serde", serde(rename = $word))] $variant, )+
        }

        impl $name {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )+];
            /// The words of all of them.
            pub const WORDS: Words<'static> = Words(&[$( $word, )+]);

            /// The word that is written for it.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $word, )+ }
            }
        }

        impl FromStr for $name {
            /// The words that there are.
            type Err = Words<'static>;

            fn from_str(text: &str) -> Result<Self, Words<'static>> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text).ok_or(Self::WORDS)
            }
        }

        impl Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// How a share is enforced, weakest first.
    #[derive(Default, PartialOrd, Ord)]
    pub enum Tier {
        /// Bookkeeping alone: recorded in the ledger and the limits file, enforced by nothing.
        #[default]
        Accounting = "accounting",
        /// `libdivvy.so` inside the container.
        Shim = "shim",
        /// Limits of the MPS server, kept by the driver.
        Mps = "mps",
        /// The hardware, because the container has a MIG instance to itself.
        Mig = "mig",
    }
}

words! {
    /// Whether a container may use time that others leave idle.
    #[derive(Default)]
    pub enum Compute {
        /// Never above its share.
        #[default]
        Cap = "cap",
        /// May use what the busy tenants' guarantees leave.
        Burst = "burst",
    }
}

words! {
    /// Who is served first where there isn't enough time for all. Guaranteed shares are kept in any case. A container without a
    /// priority neither yields nor is yielded to.
    pub enum Priority {
        /// Containers of low priority yield while it is at work.
        High = "high",
        /// While a container of high priority is at work it has its guaranteed share, or
        /// [`MIN_PARTS`](crate::clock::MIN_PARTS) if it has none.
        Low = "low",
    }
}

/// The most compute of a card that a container has in all, where it may use what others leave: 1 to 100 percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ComputeLimit(u32);

/// How a container's shares are enforced. Fixed at Allocate, because the answer, which the kubelet caches, brings what the tier
/// needs into the container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Terms {
    /// The tier that the container was made for. No stronger one can be had without another Allocate.
    pub tier: Tier,
    /// What happens with compute that others leave idle.
    pub compute: Compute,
    /// The most that it has in all, where it may use that; `None`: all of the card.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub compute_limit: Option<ComputeLimit>,
    /// Priority where there isn't enough of that.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub priority: Option<Priority>,
}

// === impl Words ===

impl<W: Display> Display for Words<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, word) in self.0.iter().enumerate() {
            let before = match at {
                0 => "",
                _ if at + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(f, "{before}{word}")?;
        }
        Ok(())
    }
}

// === impl Tier ===

impl Tier {
    /// What holds a process to its share, for people.
    pub const fn enforcement(self) -> &'static str {
        match self {
            Self::Accounting => "shares are counted, and nothing is enforced",
            Self::Shim => "a library in the container, which a process can get round",
            Self::Mps => "limits of the driver",
            Self::Mig => "hardware",
        }
    }

    /// Comment on it in the limits file, for those who open that.
    pub(crate) const fn comment(self) -> &'static str {
        match self {
            Self::Accounting => "recorded in the node's ledger, not enforced",
            Self::Shim => "enforced by libdivvy.so inside the container, which can detect more than it can prevent",
            Self::Mps => {
                "memory and a cap on compute enforced by CUDA's multi-process service, and memory by libdivvy.so too"
            }
            Self::Mig => "enforced by the hardware: whole MIG instances, allocated to no other container",
        }
    }

    /// Whether some GPUs of a node can have it and others another such tier. Else all GPUs of a node have it.
    pub const fn is_per_gpu(self) -> bool {
        match self {
            Self::Accounting | Self::Shim => true,
            Self::Mps | Self::Mig => false,
        }
    }

    /// Whether a node of this tier serves a pod that requests `wanted`: a weaker tier, the same one, or `mig` where the node
    /// has MIG instances, whose tier is the hardware's whatever the node's is.
    #[must_use]
    pub fn serves(self, wanted: Self, has_instances: impl FnOnce() -> bool) -> bool {
        wanted <= self || (wanted == Self::Mig && has_instances())
    }
}

// === impl ComputeLimit ===

impl ComputeLimit {
    /// A limit in percent; `None` if it isn't 1 to 100.
    pub const fn new(percent: u32) -> Option<Self> {
        if matches!(percent, 1..=100) { Some(Self(percent)) } else { None }
    }

    /// Percent of a card's compute.
    pub const fn percent(self) -> u32 {
        self.0
    }
}

// === impl Terms ===

impl Terms {
    /// These terms for parts of cards on a node that serves this tier. The hardware enforces no parts.
    #[must_use]
    pub fn under(self, served: Tier) -> Self {
        let is_of_whole = self.tier == Tier::Mig || served == Tier::Mig;
        Self { tier: if is_of_whole { Tier::Accounting } else { self.tier.min(served) }, ..self }
    }

    /// Whether these are the terms of a holding of which nothing is known.
    pub fn are_weakest(&self) -> bool {
        *self == Self::default()
    }
}

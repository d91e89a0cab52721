//! What all parts of Divvy agree on, and nothing that does I/O.
//!
//! ```text
//! limits ──claim──▶ Claim ──share_on(card)──▶ Share      quantity: how people write amounts
//! annotations ─────▶ Preferences, Request, Planned, Cards   gpunode: what a node reports
//!                                                           usage: what containers really use
//! ```

pub mod annotation;
pub mod card;
pub mod claim;
pub mod container;
pub mod gpunode;
pub mod names;
pub mod pod;
pub mod quantity;
pub mod share;
pub mod usage;

pub use card::{CardId, MigProfile, SlotId};
pub use claim::{Claim, MemoryAmount, Totals};
pub use names::{ResourceName, ResourceNames};
pub use pod::{ContainerClaim, ContainerKind, ContainerSpec};
pub use quantity::{Cores, Memory};
pub use share::{Share, Tier};

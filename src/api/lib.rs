//! divvy-api: what all parts of Divvy agree on. No I/O.
//!
//! ```text
//! limits ──▶ GpuRequest ──share_on(card)──▶ Share       quantity: how people write amounts
//! annotations ─────▶ Preferences, RequestAnnotation, Planned, Cards   gpunode: what a node reports
//! config: keys that all parts share                         usage: what containers really use
//!                                                           gpuquota: what a namespace may hold
//! ```

pub mod annotation;
pub mod card;
pub mod card_id;
pub mod config;
pub mod container;
pub mod gpunode;
pub mod gpuquota;
pub mod installation;
pub mod limits;
pub mod links;
pub mod names;
pub mod pod;
pub mod quantity;
pub mod request;
pub mod share;
pub mod usage;

pub use card::{Card, Health, MigInstance, NodeCards};
pub use card_id::{CardId, MigProfile, SlotId};
pub use divvy_region::{Compute, ComputeLimit, Priority, Terms, Tier};
pub use links::{Link, Links};
pub use names::{ResourceName, ResourceNames};
pub use pod::{ContainerKind, ContainerSpec};
pub use quantity::{Cores, Memory};
pub use request::{ContainerRequest, GpuRequest, MemoryAmount, Totals};
pub use share::Share;

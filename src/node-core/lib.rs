//! Decisions of divvy-node: which container a call is for, which cards it gets, and what the ledger records.
//!
//! ```text
//! a call of the kubelet ──▶ calls ──▶ candidates ──▶ identity      which pod? by elimination
//!                             │           ▲   └────▶ ledger        shares of ended pods end (reconcile)
//!                             │       PodSource
//!                             ▼
//!                         allocator ──▶ divvy-placement            which cards? the whole pod is planned
//!                             ├───────▶ ledger                     who holds what, journaled
//!                             └───────▶ ContainerSetup             directories, limits, what the runtime adds
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`pod`], [`inventory`] | pods and cards as they are known |
//! | [`ledger`] | which container holds which share of which card; the journal; reconciliation with the kubelet |
//! | [`amounts`] | what of a node's GPUs is allocatable |
//! | [`foreign`] | which GPUs the devices of another system's plugin are |
//! | [`identity`] | which container a call is for |
//! | [`allocator`] | the answer to every call: plain, synchronous, behind one lock |
//! | `daemon::candidates` | the pods among which the one under admission is: the kubelet's list, or API server and PodResources |
//! | `daemon::recovery` | a start of the daemon, a kubelet that lost its checkpoint, a ledger that lost a pod |
//! | `daemon::calls` | the kubelet's calls, step by step |
//! | `daemon::ending` | what a daemon has to know before it ends |
//! | [`serving`] | whether pods can be served at all |
//! | [`ports`] | what is needed of the world: [`ports::PodSource`], [`ports::ContainerSetup`] and [`ports::CoreMetrics`] |
//!
//! Nothing here knows gRPC, HTTP, Kubernetes' clients or NVML, and nothing waits but for a port; only the journal is a file.

pub mod allocator;
pub mod amounts;
mod daemon;
pub mod foreign;
pub mod identity;
pub mod inventory;
pub mod ledger;
pub mod pod;
pub mod ports;
pub mod serving;

pub use daemon::{Admissions, Daemon};

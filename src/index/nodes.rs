//! Nodes at one moment, for readers: each node is made anew at every change and never changed.

mod node;
mod node_object;
mod table;
mod unschedulable;

pub(crate) use node::PODS;
pub use node::{Holder, Node};
pub use node_object::NodeObject;
pub use table::NodeRef;
pub(crate) use table::{Table, View};
pub use unschedulable::Unschedulable;

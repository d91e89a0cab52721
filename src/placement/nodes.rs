//! Comparison of nodes: which fit, which plan is better, and what a pod on a node leaves for the requests to come.

pub mod card_table;
pub mod expected;
pub mod forecast;
pub mod free_capacity;
pub mod score;

//! The aggregated API, as kube-apiserver calls it.

mod bench;
mod client;
mod doors;
mod lists;
mod memory;
mod starting;
mod watches;

pub(crate) use self::bench::Bench;

//! A real `divvy-node` process between a kubelet stand-in, a fake NVML and an API-server stand-in, and everything that may befall it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "all of this is tests")]

mod authentication;
mod bench;
mod calls;
mod card_overrides;
mod cards;
mod debug;
mod disk;
mod foreign;
mod instances;
mod large_pods;
mod ledger;
mod metrics;
mod mps;
mod oversubscription;
mod pages;
mod pod_list;
mod process;
mod publishing;
mod refusals;
mod rejections;
mod resources;
mod serving;
mod shim;
mod trust;
mod unified_memory;
mod uninstall;
mod unlisted;
mod usage;

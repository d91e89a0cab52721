//! What the cluster is told: a real daemon between kubelet, cards and API server.

mod amounts;
mod cards;
mod drain;
mod gpu_node;
mod loads;
mod outages;
mod pods;

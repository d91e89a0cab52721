//! The listeners: the API for kube-apiserver, pages for Prometheus and the kubelet.
//!
//! ```text
//! kube-apiserver ─TLS─▶ api ─ query, accept ─▶ store ─▶ form ─▶ lists, tables
//!                │                    └──────▶ watching ─▶ form ─▶ lines, as long as the client likes
//! ```

pub mod accept;
pub mod api;
pub mod discovery;
pub mod form;
pub mod openapi;
pub mod pages;
pub mod query;
pub mod status;
pub mod watching;

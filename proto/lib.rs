//! The kubelet's device-plugin and PodResources services, compiled at build time from the `.proto` files beside this one.

/// Device-plugin API, `v1beta1`.
pub mod deviceplugin {
    #![allow(missing_docs, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated code")]
    #![allow(rustdoc::all, unused_qualifications, single_use_lifetimes, reason = "generated code")]
    tonic::include_proto!("v1beta1");

    /// The API version that `Register` must name.
    pub const VERSION: &str = "v1beta1";
    /// The one health text that makes a device allocatable.
    pub const HEALTHY: &str = "Healthy";
    /// What NVIDIA's and our plugin write for any other state.
    pub const UNHEALTHY: &str = "Unhealthy";
}

/// PodResources API, `v1`.
pub mod podresources {
    #![allow(missing_docs, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated code")]
    #![allow(rustdoc::all, unused_qualifications, single_use_lifetimes, reason = "generated code")]
    tonic::include_proto!("v1");
}

#[cfg(test)]
mod wire;

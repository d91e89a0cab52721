//! Device plugins as the device manager and the registration server keep them.

use std::sync::Arc;
use std::time::Instant;

use divvy_proto::deviceplugin as dp;
use divvy_proto::deviceplugin::device_plugin_client::DevicePluginClient;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// What grpc-go takes from a plugin in one message.
pub(crate) const MOST_BYTES: usize = 4 << 20;

/// A resource's place in the device manager.
pub(crate) struct Endpoint {
    /// `None`: stopped.
    pub(crate) plugin: Option<Plugin>,
    /// `None` between a kubelet's start and the plugin's registration.
    pub(crate) options: Option<dp::DevicePluginOptions>,
    /// Since when the plugin is gone.
    pub(crate) stopped: Option<Instant>,
}

/// A connected plugin.
#[derive(Clone)]
pub(crate) struct Plugin {
    pub(crate) grpc: DevicePluginClient<Channel>,
    pub(crate) client: Arc<Client>,
}

/// A registration as the registration server knows it.
#[derive(Default)]
pub(crate) struct Client {
    /// Closes the connection.
    pub(crate) cut: CancellationToken,
}

//! divvy-runtime: what every long-running program of Divvy needs besides its work.
//!
//! ```text
//! settings     flags, environment and file become one checked configuration
//! logging      where log lines go, and how a lasting problem is logged once
//! outage       how a failure that comes again and again is logged at growing distance
//! api_server   client of the API server, watches with back-off, errors in words, the log of failed requests
//! tasks        the program's tasks; one that ends early ends the program
//! signals      SIGTERM and SIGINT
//! metrics      the page that Prometheus scrapes
//! debug        pages of the admin listener: log filter, CPU profile, threads and tasks, state
//! files        directories and files that others read while they are written
//! list         lists of the Kubernetes API, item by item
//! ```
//!
//! Nothing here knows a key, a task or an object of any one program.

pub mod api_server;
pub mod debug;
pub mod files;
pub mod list;
pub mod logging;
mod metrics;
mod outage;
pub mod settings;
mod signals;
mod tasks;

pub use metrics::metrics;
pub use signals::Signals;
pub use tasks::{Next, TaskList, TaskStatus, Tasks};

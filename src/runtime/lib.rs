//! divvy-runtime: what every long-running program of Divvy needs besides its work.
//!
//! ```text
//! program      what a program does around its work: start, signals, admin listener, end
//! settings     flags, environment and file become one checked configuration
//! logging      where log lines go, and how a lasting problem is logged once
//! outage       how a failure that comes again and again is logged at growing distance
//! api_server   client of the API server, watches with back-off, errors in words, the log of failed requests
//! tasks        the program's tasks; one that ends early ends the program
//! signals      SIGTERM and SIGINT
//! pages        listeners, metrics and readiness
//! debug        pages of the admin listener: log filter, CPU profile, threads and tasks, state
//! driver       where the libraries of NVIDIA's driver are
//! files        directories and files that others read while they are written
//! list         lists of the Kubernetes API, item by item
//! ```
//!
//! Nothing here knows a key, a task or an object of any one program.

pub mod api_server;
mod debug;
pub mod driver;
pub mod files;
pub mod list;
pub mod logging;
mod outage;
pub mod pages;
pub mod program;
pub mod settings;
mod signals;
mod tasks;

pub use signals::Signals;
pub use tasks::{Next, Tasks};

//! divvy-serving: what a program needs that the API server calls.
//!
//! ```text
//! connections  places for connections, and how long a client may take
//! tls          the serving certificate: issued or read, rotated, and announced to the API server
//! ```

pub mod connections;
pub mod tls;

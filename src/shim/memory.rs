//! Memory: every byte that the driver charges is first reserved in the container's accounting region.
//!
//! ```text
//!  hook ──▶ Quota: reserve ──▶ the driver ──▶ resources: what it gave, and for how many bytes ──▶ free: the driver, then release
//!                  │ out of quota
//!                  └─▶ give back what lies idle in our own pools, reap dead processes, and try once more
//! ```
//!
//! Charged is what the card gives for it: whole pages, of which small allocations share some ([`pages`]).
//!
//! The order is what keeps the limit: reserved before the driver gives, released after it has taken back. What the driver
//! refuses is released at once; what isn't known here is the driver's to judge, and changes no figure.
//!
//! Where the share is oversubscribed, what doesn't fit on the card is asked for as managed memory ([`spill`]).
//!
//! Not charged: host memory, addresses, and what other processes have made and this one only opens or imports, for it is
//! charged to who made it. What no function here asks for, such as modules, graphics and what a binding to a multicast
//! object alone keeps alive, the driver charges to the process: the daemon finds it there, and tells us
//! ([`divvy_region::overhead`]).

pub(crate) mod allocations;
pub(crate) mod arrays;
pub(crate) mod contexts;
pub(crate) mod graphs;
pub(crate) mod green;
pub(crate) mod imports;
mod pages;
pub(crate) mod physical;
pub(crate) mod pools;
mod quota;
pub(crate) mod reported;
mod resources;
mod spill;
mod streams;

/// In a child that fork made: it holds nothing.
pub(crate) fn forget() {
    resources::RESOURCES.forget();
    contexts::forget_all();
    imports::forget();
    graphs::forget();
    pages::forget();
    physical::forget();
    pools::forget();
}

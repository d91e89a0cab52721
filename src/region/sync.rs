//! The atomics of all protocols here: the machine's; in unit tests the same, but what is done to them can be recorded; and
//! those of loom, which tries every order.

#[cfg(not(loom))]
pub(crate) use core::hint::spin_loop;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicI64, AtomicU32, Ordering};
#[cfg(not(any(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicU64, fence};

#[cfg(all(test, not(loom)))]
pub(crate) use traced::{AtomicU64, fence};

#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(all(test, not(loom)))]
pub(crate) mod traced;

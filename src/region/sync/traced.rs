//! Atomics that say what was done to them, so that tests explore the steps that the code really takes.

use std::cell::RefCell;
use std::sync::atomic::{self, Ordering};
use std::vec::Vec;

std::thread_local! {
    static RECORD: RefCell<Option<Vec<Access>>> = const { RefCell::new(None) };
}

/// One access, in the order of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A word, by its address, was read.
    Read(usize),
    /// It was changed in one step, by so much.
    Changed(usize, i64),
    /// A fence of this strength.
    Fence(Ordering),
}

/// What this thread does to atomics while `act` runs.
pub(crate) fn record(act: impl FnOnce()) -> Vec<Access> {
    RECORD.set(Some(Vec::new()));
    act();
    RECORD.take().expect("set above")
}

fn note(access: Access) {
    RECORD.with_borrow_mut(|record| record.iter_mut().for_each(|record| record.push(access)));
}

pub(crate) fn fence(order: Ordering) {
    note(Access::Fence(order));
    atomic::fence(order);
}

#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct AtomicU64(atomic::AtomicU64);

// === impl AtomicU64 ===

impl AtomicU64 {
    pub(crate) fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        note(Access::Read(self.address()));
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.changed(self.0.load(Ordering::Relaxed), value);
        self.0.store(value, order);
    }

    pub(crate) fn fetch_add(&self, more: u64, order: Ordering) -> u64 {
        let before = self.0.fetch_add(more, order);
        self.changed(before, before.wrapping_add(more));
        before
    }

    pub(crate) fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        to: impl Fn(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        let before = self.0.fetch_update(set, fetch, &to)?;
        self.changed(before, to(before).unwrap_or(before));
        Ok(before)
    }

    pub(crate) fn compare_exchange(
        &self,
        from: u64,
        to: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let before = self.0.compare_exchange(from, to, success, failure)?;
        self.changed(from, to);
        Ok(before)
    }

    fn changed(&self, from: u64, to: u64) {
        note(Access::Changed(self.address(), to.wrapping_sub(from).cast_signed()));
    }
}

//! Pools of memory that is freed in the order of streams.

use super::Driver;
use super::memory::{Block, Kind};
use crate::codes::Code;

/// What a pool has of its card, in bytes.
pub(crate) struct Pool {
    pub(crate) device: usize,
    /// Host memory costs the card nothing.
    pub(crate) on_host: bool,
    /// Whether it is the default one of the host.
    pub(crate) is_hosts_own: bool,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    /// Kept at a synchronisation, if it was reserved.
    pub(crate) threshold: u64,
    /// 0: as much as the card has.
    pub(crate) most: u64,
    /// `CUmemPool_attribute` 1 to 3, which change nothing here.
    pub(crate) reuse: [i32; 3],
}

// === impl Pool ===

impl Pool {
    pub(crate) fn new(device: usize) -> Self {
        let counters = (0, 0, 0, 0);
        let (reserved, reserved_high, used, used_high) = counters;
        let (threshold, most, reuse) = (0, 0, [1; 3]);
        Self {
            device,
            on_host: false,
            is_hosts_own: false,
            reserved,
            reserved_high,
            used,
            used_high,
            threshold,
            most,
            reuse,
        }
    }
}

// === impl Driver ===

impl Driver {
    /// The default pool of host memory.
    pub(crate) fn host_pool(&mut self) -> usize {
        let known = self.pools.iter().find(|(_, pool)| pool.is_hosts_own).map(|(handle, _)| handle);
        known.unwrap_or_else(|| self.pools.add(Pool { on_host: true, is_hosts_own: true, ..Pool::new(0) }))
    }

    /// Allocates from a pool.
    pub(crate) fn allocate_from(&mut self, pool: usize, size: u64) -> Result<u64, Code> {
        if size == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let granularity = self.machine.granularity.max(1);
        let state = self.pools.get_mut(pool).map_err(|_unknown| Code::INVALID_VALUE)?;
        let used = state.used.checked_add(size).ok_or(Code::OUT_OF_MEMORY)?;
        let reserved = used.checked_next_multiple_of(granularity).ok_or(Code::OUT_OF_MEMORY)?.max(state.reserved);
        if state.most > 0 && reserved > state.most {
            return Err(Code::OUT_OF_MEMORY);
        }
        let device = state.device;
        if !state.on_host {
            self.devices[device].charge(reserved - state.reserved)?;
        }
        (state.used, state.used_high) = (used, state.used_high.max(used));
        (state.reserved, state.reserved_high) = (reserved, state.reserved_high.max(reserved));
        let context = super::context::current();
        self.place(size, Block { size, charged: 0, device, context, kind: Kind::Pool { pool }, id: 0 })
    }

    pub(crate) fn pool_freed(&mut self, pool: usize, size: u64) {
        if let Ok(state) = self.pools.get_mut(pool) {
            state.used = state.used.saturating_sub(size);
        }
    }

    /// Gives back what a pool doesn't use, but for so many bytes.
    pub(crate) fn trim(&mut self, pool: usize, keep: u64) -> Result<(), Code> {
        let granularity = self.machine.granularity.max(1);
        let state = self.pools.get_mut(pool).map_err(|_unknown| Code::INVALID_VALUE)?;
        let keep = keep.max(state.used).checked_next_multiple_of(granularity).unwrap_or(u64::MAX).min(state.reserved);
        if !state.on_host {
            self.devices[state.device].release(state.reserved - keep);
        }
        state.reserved = keep;
        Ok(())
    }

    /// What a synchronisation does: pools of the card keep no more than their threshold.
    pub(crate) fn settle_pools(&mut self, device: usize) -> Result<(), Code> {
        let of_it = self.pools.iter().filter(|(_, pool)| pool.device == device && pool.reserved > pool.used);
        let of_it: Vec<(usize, u64)> = of_it.map(|(handle, pool)| (handle, pool.threshold)).collect();
        for (pool, threshold) in of_it {
            self.trim(pool, threshold)?;
        }
        Ok(())
    }

    /// Ends a pool. What is allocated from it stays charged until it is freed.
    pub(crate) fn destroy_pool(&mut self, pool: usize) -> Result<(), Code> {
        if self.devices.iter().any(|device| device.default_pool == pool) {
            return Err(Code::INVALID_VALUE);
        }
        self.trim(pool, 0)?;
        let state = self.pools.remove(pool).map_err(|_unknown| Code::INVALID_VALUE)?;
        for device in self.devices.iter_mut().filter(|device| device.pool == pool) {
            device.pool = device.default_pool;
        }
        // The blocks that are left are charged one by one from here on.
        let left = self.memory.blocks().filter(|(_, block)| block.kind == Kind::Pool { pool });
        let left: Vec<u64> = left.map(|(base, _)| base).collect();
        let mut unassigned = if state.on_host { 0 } else { state.reserved };
        for base in left {
            if let Some(block) = self.memory.get_mut(base) {
                block.charged = block.size.min(unassigned);
                unassigned -= block.charged;
            }
        }
        self.devices[state.device].release(unassigned);
        Ok(())
    }
}

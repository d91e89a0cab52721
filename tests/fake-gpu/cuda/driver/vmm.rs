//! Virtual memory management: addresses, physical memory and mappings, each with a life of its own.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Driver;
use super::table::Table;
use crate::codes::Code;

pub(crate) struct Virtual {
    pub(crate) physical: Table<Physical>,
    reservations: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
}

/// Physical memory. It lives until it has neither handles nor mappings.
pub(crate) struct Physical {
    /// `None`: host memory.
    pub(crate) device: Option<usize>,
    pub(crate) size: u64,
    /// Bytes that the card was charged: nothing for another process's memory.
    charged: u64,
    handles: u32,
    mapped: u32,
    /// `CUmemAllocationProp`'s fields: type, handle types, location type, location.
    pub(crate) properties: [u32; 4],
}

struct Mapping {
    size: u64,
    handle: usize,
    accessible: bool,
}

// === impl Virtual ===

impl Virtual {
    pub(crate) fn new() -> Self {
        Self { physical: Table::new(11), reservations: BTreeMap::new(), mappings: BTreeMap::new() }
    }

    /// Whether all of a range is mapped and may be accessed.
    pub(crate) fn is_mapped(&self, range: Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            let mapping = self.mappings.range(..=at).next_back();
            match mapping.filter(|(base, mapping)| at - **base < mapping.size && mapping.accessible) {
                Some((base, mapping)) => at = base + mapping.size,
                None => return false,
            }
        }
        true
    }

    /// The reservation that an address lies in.
    pub(crate) fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (base, size) = self.reservations.range(..=address).next_back()?;
        (address - base < *size).then_some((*base, *size))
    }

    /// The mapping that an address lies in: where it begins, its size, and its memory.
    pub(crate) fn mapping(&self, address: u64) -> Option<(u64, u64, usize)> {
        let (base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.size).then_some((*base, mapping.size, mapping.handle))
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        let before = self.mappings.range(..range.end).next_back();
        before.is_some_and(|(base, mapping)| base + mapping.size > range.start)
    }
}

// === impl Driver ===

impl Driver {
    /// Makes physical memory. `imported`: it is charged elsewhere.
    pub(crate) fn create_physical(
        &mut self,
        device: Option<usize>,
        size: u64,
        properties: [u32; 4],
        imported: bool,
    ) -> Result<usize, Code> {
        let granularity = self.machine.granularity.max(1);
        if size == 0 || !size.is_multiple_of(granularity) {
            return Err(Code::INVALID_VALUE);
        }
        let charged = if imported || device.is_none() { 0 } else { size };
        if let Some(device) = device {
            self.devices[device].charge(charged)?;
        }
        let physical = Physical { device, size, charged, handles: 1, mapped: 0, properties };
        Ok(self.virtual_memory.physical.add(physical))
    }

    /// The memory behind a handle that wasn't released.
    pub(crate) fn physical(&mut self, handle: usize) -> Result<&mut Physical, Code> {
        let physical = self.virtual_memory.physical.get_mut(handle).ok();
        physical.filter(|physical| physical.handles > 0).ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn release_physical(&mut self, handle: usize) -> Result<(), Code> {
        self.physical(handle)?.handles -= 1;
        self.drop_physical(handle)
    }

    /// One more handle to the memory that is mapped at an address.
    pub(crate) fn retain_physical(&mut self, address: u64) -> Result<usize, Code> {
        let (_, _, handle) = self.virtual_memory.mapping(address).ok_or(Code::INVALID_VALUE)?;
        self.virtual_memory.physical.get_mut(handle)?.handles += 1;
        Ok(handle)
    }

    fn drop_physical(&mut self, handle: usize) -> Result<(), Code> {
        let physical = self.virtual_memory.physical.get(handle)?;
        if physical.handles > 0 || physical.mapped > 0 {
            return Ok(());
        }
        let physical = self.virtual_memory.physical.remove(handle)?;
        if let Some(device) = physical.device {
            self.devices[device].release(physical.charged);
        }
        Ok(())
    }

    pub(crate) fn reserve_addresses(&mut self, size: u64, alignment: u64, wanted: u64) -> Result<u64, Code> {
        let granularity = self.machine.granularity.max(1);
        let alignment = alignment.max(granularity);
        if size == 0 || !size.is_multiple_of(granularity) || !alignment.is_power_of_two() {
            return Err(Code::INVALID_VALUE);
        }
        let space = &mut self.memory.space;
        let there = wanted != 0 && wanted.is_multiple_of(alignment) && space.take_at(wanted, size).is_some();
        let base = if there { wanted } else { space.take(size, alignment).ok_or(Code::OUT_OF_MEMORY)? };
        self.virtual_memory.reservations.insert(base, size);
        Ok(base)
    }

    pub(crate) fn free_addresses(&mut self, base: u64, size: u64) -> Result<(), Code> {
        let state = &mut self.virtual_memory;
        if state.reservations.get(&base) != Some(&size) || state.overlaps(&(base..base + size)) {
            return Err(Code::INVALID_VALUE);
        }
        state.reservations.remove(&base);
        self.memory.space.give(base, size, false);
        Ok(())
    }

    pub(crate) fn map_physical(&mut self, base: u64, size: u64, offset: u64, handle: usize) -> Result<(), Code> {
        let granularity = self.machine.granularity.max(1);
        let physical = self.physical(handle)?;
        let fits = offset == 0 && size == physical.size && base.is_multiple_of(granularity);
        let end = base.checked_add(size).ok_or(Code::INVALID_VALUE)?;
        let state = &mut self.virtual_memory;
        let reserved = state.reservation(base).is_some_and(|(start, length)| end <= start + length);
        if !fits || !reserved || state.overlaps(&(base..end)) {
            return Err(Code::INVALID_VALUE);
        }
        state.physical.get_mut(handle)?.mapped += 1;
        state.mappings.insert(base, Mapping { size, handle, accessible: false });
        Ok(())
    }

    /// Ends the mappings that fill a range.
    pub(crate) fn unmap(&mut self, base: u64, size: u64) -> Result<(), Code> {
        for address in self.mappings_of(base, size)? {
            if let Some(mapping) = self.virtual_memory.mappings.remove(&address) {
                self.virtual_memory.physical.get_mut(mapping.handle)?.mapped -= 1;
                self.drop_physical(mapping.handle)?;
            }
        }
        Ok(())
    }

    pub(crate) fn set_access(&mut self, base: u64, size: u64, accessible: bool) -> Result<(), Code> {
        for address in self.mappings_of(base, size)? {
            if let Some(mapping) = self.virtual_memory.mappings.get_mut(&address) {
                mapping.accessible = accessible;
            }
        }
        Ok(())
    }

    /// The mappings that together are a range.
    fn mappings_of(&self, base: u64, size: u64) -> Result<Vec<u64>, Code> {
        let end = base.checked_add(size).ok_or(Code::INVALID_VALUE)?;
        let mut at = base;
        let mut found = Vec::new();
        while at < end {
            let mapping = self.virtual_memory.mappings.get(&at).ok_or(Code::INVALID_VALUE)?;
            found.push(at);
            at += mapping.size;
        }
        if at == end && size > 0 { Ok(found) } else { Err(Code::INVALID_VALUE) }
    }
}

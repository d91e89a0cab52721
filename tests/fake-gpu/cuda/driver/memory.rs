//! What is allocated, and where it lies.
//!
//! A device address lies in a range that the program can't touch. Its bytes are the same distance away from it for all of
//! them, and cost nothing until they are written.
//!
//! A card is charged by pages (`Machine::rounding`): what is larger than half of one has pages of its own, and what is smaller
//! shares one with others of its context.

pub(crate) mod space;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::{fs, io};

use super::Driver;
use crate::codes::Code;
use space::Space;

/// What addresses are multiples of.
pub(crate) const ALIGNMENT: u64 = 512;

/// `CU_DEVICE_CPU`
pub(crate) const HOST: i32 = -1;

pub(crate) struct Memory {
    pub(crate) space: Space,
    blocks: BTreeMap<u64, Block>,
    /// The pages that small blocks share, by address.
    slabs: BTreeMap<u64, Slab>,
    /// Where managed blocks belong: on a card, by its ordinal, or on the host ([`HOST`]).
    preferred: BTreeMap<u64, i32>,
    /// The blocks that other processes may open, by ID.
    pub(crate) exported: BTreeSet<u64>,
    /// Where files about exported memory lie.
    pub(crate) state: PathBuf,
}

#[derive(Clone)]
pub(crate) struct Block {
    pub(crate) size: u64,
    /// Bytes that the card was charged for it.
    pub(crate) charged: u64,
    pub(crate) device: usize,
    pub(crate) context: usize,
    pub(crate) kind: Kind,
    pub(crate) id: u64,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    /// The program can touch it. Bytes of it that were moved to the card are charged.
    Managed,
    /// Allocated from a pool.
    Pool {
        pool: usize,
    },
    /// Allocated by a graph's node; only there while the graph has allocated it.
    Graph {
        live: bool,
    },
    /// Another process's.
    Ipc,
    /// Imported from another API.
    External,
    /// A variable of a module.
    Global {
        module: usize,
    },
    /// Host memory of ours, and the program's that was registered.
    Host {
        flags: u32,
    },
    Registered {
        flags: u32,
    },
}

/// A page that small blocks share.
struct Slab {
    context: usize,
    /// Bytes that no block has; together or not.
    free: u64,
}

/// An array, a mipmapped array, or a level of one.
pub(crate) struct Array {
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) shape: Shape,
    pub(crate) levels: u32,
    /// Where its bytes are.
    pub(crate) address: u64,
    pub(crate) level_of: Option<usize>,
}

/// Elements in each direction; 0: the array has fewer dimensions.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

// === impl Memory ===

impl Memory {
    /// The memory of cards that have `total` bytes together.
    pub(crate) fn new(state: PathBuf, total: u64) -> io::Result<Self> {
        let (blocks, slabs, preferred) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Self { space: Space::reserve(total)?, blocks, slabs, preferred, exported: BTreeSet::new(), state })
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = (u64, &Block)> {
        self.blocks.iter().map(|(base, block)| (*base, block))
    }

    pub(crate) fn insert(&mut self, base: u64, block: Block) {
        self.blocks.insert(base, block);
    }

    pub(crate) fn remove(&mut self, base: u64) -> Option<Block> {
        self.preferred.remove(&base);
        self.blocks.remove(&base)
    }

    /// The managed block that an address lies in.
    pub(crate) fn managed(&self, address: u64) -> Result<u64, Code> {
        let found = self.find(address).filter(|(_, block)| block.kind == Kind::Managed);
        found.map(|(base, _)| base).ok_or(Code::INVALID_VALUE)
    }

    /// Says where a managed block belongs.
    pub(crate) fn prefer(&mut self, address: u64, place: Option<i32>) -> Result<(), Code> {
        let base = self.managed(address)?;
        match place {
            Some(place) => self.preferred.insert(base, place),
            None => self.preferred.remove(&base),
        };
        Ok(())
    }

    /// Where a managed block belongs, if that was said.
    pub(crate) fn preferred(&self, address: u64) -> Result<Option<i32>, Code> {
        Ok(self.preferred.get(&self.managed(address)?).copied())
    }

    pub(crate) fn get_mut(&mut self, base: u64) -> Option<&mut Block> {
        self.blocks.get_mut(&base)
    }

    /// The block that an address lies in, and where it begins.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Block)> {
        let (base, block) = self.blocks.range(..=address).next_back()?;
        (address - base < block.size).then_some((*base, block))
    }

    /// What was allocated in a context is another's from now on.
    pub(crate) fn leave(&mut self, context: usize, to: usize) {
        let blocks = self.blocks.values_mut().map(|block| &mut block.context);
        let owners = blocks.chain(self.slabs.values_mut().map(|slab| &mut slab.context));
        owners.filter(|owner| **owner == context).for_each(|owner| *owner = to);
    }

    /// An address for so many bytes in a page that small blocks of a context share.
    fn room(&self, context: usize, size: u64, page: u64) -> Option<u64> {
        let fitting = self.slabs.iter().filter(|(_, slab)| slab.context == context && slab.free >= size);
        fitting.map(|(slab, _)| *slab).find_map(|slab| {
            let end = slab + page;
            let gap = self.blocks.range(slab..end).try_fold(slab, |at, (base, block)| {
                if base - at >= size { Err(at) } else { Ok((base + block.size).next_multiple_of(ALIGNMENT)) }
            });
            match gap {
                Ok(at) => Some(at).filter(|at| *at <= end && end - at >= size),
                Err(at) => Some(at),
            }
        })
    }
}

// === impl Block ===

impl Block {
    fn is_managed_on(&self, device: usize) -> bool {
        self.kind == Kind::Managed && self.device == device
    }
}

// === impl Driver ===

impl Driver {
    /// Allocates memory for the current context. Of the kinds it is device memory that the card is charged for.
    pub(crate) fn allocate(&mut self, size: u64, kind: Kind) -> Result<u64, Code> {
        let context = super::context::current();
        let device = self.current()?.device;
        if size == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let block = Block { size, charged: 0, device, context, kind, id: 0 };
        if block.kind != Kind::Device {
            return self.place(size, block);
        }
        let page = self.machine.rounding.max(1);
        if size <= page / 2 {
            return self.share_page(page, block);
        }
        let charged = size.checked_next_multiple_of(page).ok_or(Code::OUT_OF_MEMORY)?;
        self.place_charged(charged, page, Block { charged, ..block })
    }

    /// Places a block beside others in a page.
    fn share_page(&mut self, page: u64, block: Block) -> Result<u64, Code> {
        let room = self.memory.room(block.context, block.size, page);
        let base = if let Some(base) = room { base } else { self.add_slab(page, &block)? };
        if let Some((_, slab)) = self.memory.slabs.range_mut(..=base).next_back() {
            slab.free -= block.size;
        }
        let id = self.id();
        self.memory.insert(base, Block { id, ..block });
        Ok(base)
    }

    fn add_slab(&mut self, page: u64, of: &Block) -> Result<u64, Code> {
        self.devices[of.device].charge(page)?;
        let Some(slab) = self.memory.space.take(page, page) else {
            self.devices[of.device].release(page);
            return Err(Code::OUT_OF_MEMORY);
        };
        self.memory.slabs.insert(slab, Slab { context: of.context, free: page });
        Ok(slab)
    }

    /// Charges the card, and places a block at a multiple of so much.
    fn place_charged(&mut self, charged: u64, alignment: u64, block: Block) -> Result<u64, Code> {
        let device = block.device;
        self.devices[device].charge(charged)?;
        let Some(base) = self.memory.space.take(charged.max(block.size), alignment.max(ALIGNMENT)) else {
            self.devices[device].release(charged);
            return Err(Code::OUT_OF_MEMORY);
        };
        let id = self.id();
        self.memory.insert(base, Block { id, ..block });
        Ok(base)
    }

    /// Finds an address for a block.
    pub(crate) fn place(&mut self, size: u64, block: Block) -> Result<u64, Code> {
        let space = &mut self.memory.space;
        let base = if block.kind == Kind::Managed { space.take_open(size) } else { space.take(size, ALIGNMENT) };
        let base = base.ok_or(Code::OUT_OF_MEMORY)?;
        let id = self.id();
        self.memory.insert(base, Block { id, ..block });
        Ok(base)
    }

    /// Frees the block that begins at an address.
    pub(crate) fn free_block(&mut self, base: u64) -> Result<(), Code> {
        let block = self.memory.remove(base).ok_or(Code::INVALID_VALUE)?;
        match block.kind {
            Kind::Host { .. } => space::unmap_host(base, block.size),
            Kind::Registered { .. } => return Ok(()),
            Kind::Pool { pool } => self.pool_freed(pool, block.size),
            Kind::Graph { live } => {
                if live {
                    self.devices[block.device].graph_memory.freed(block.size);
                }
                // The address stays the node's.
                self.memory.insert(base, Block { kind: Kind::Graph { live: false }, ..block });
                return if live { Ok(()) } else { Err(Code::INVALID_VALUE) };
            }
            Kind::Device | Kind::Managed | Kind::Ipc | Kind::External | Kind::Global { .. } => {}
        }
        if block.kind == Kind::Managed {
            self.devices[block.device].engine.member.release_managed(block.charged);
        } else {
            self.devices[block.device].release(block.charged);
        }
        if !matches!(block.kind, Kind::Host { .. }) && !self.leave_slab(base, &block) {
            let is_managed = block.kind == Kind::Managed;
            let size = if is_managed { block.size } else { block.size.max(block.charged) };
            self.memory.space.give(base, size, is_managed);
        }
        if self.memory.exported.remove(&block.id) {
            fs::remove_file(self.export_path(block.id)).map_err(|_io| Code::OPERATING_SYSTEM)?;
        }
        Ok(())
    }

    /// A block has left the page that it shared, if it did; the last gives it back.
    fn leave_slab(&mut self, base: u64, block: &Block) -> bool {
        let page = self.machine.rounding.max(1);
        let slab = self.memory.slabs.range_mut(..=base).next_back().filter(|(slab, _)| base - **slab < page);
        let Some((at, slab)) = slab else { return false };
        slab.free += block.size;
        let (at, is_empty) = (*at, slab.free == page);
        if is_empty {
            self.memory.slabs.remove(&at);
            self.devices[block.device].release(page);
            self.memory.space.give(at, page, false);
        }
        true
    }

    /// Moves managed bytes to a card, as far as it has room, or away from it.
    pub(crate) fn migrate(&mut self, base: u64, bytes: u64, to: Option<usize>) -> Result<(), Code> {
        let device = self.memory.get_mut(base).ok_or(Code::INVALID_VALUE)?.device;
        self.follow_evictions(device);
        let block = self.memory.get_mut(base).ok_or(Code::INVALID_VALUE)?;
        let (before, size) = (block.charged, block.size);
        let target = to.unwrap_or(device);
        let wanted = match to {
            Some(_) => before.saturating_add(bytes).min(size),
            None => before.saturating_sub(bytes),
        };
        self.devices[device].engine.member.release_managed(before);
        let charged = self.devices[target].charge_managed(wanted);
        let block = self.memory.get_mut(base).ok_or(Code::INVALID_VALUE)?;
        (block.charged, block.device) = (charged, target);
        Ok(())
    }

    /// Takes managed bytes that were evicted from the blocks that have been there longest.
    fn follow_evictions(&mut self, device: usize) {
        let there = self.devices[device].engine.member.managed();
        let mut managed: Vec<&mut Block> =
            self.memory.blocks.values_mut().filter(|block| block.is_managed_on(device)).collect();
        managed.sort_by_key(|block| block.id);
        let mut gone = managed.iter().map(|block| block.charged).sum::<u64>().saturating_sub(there);
        for block in managed {
            let part = block.charged.min(gone);
            (block.charged, gone) = (block.charged - part, gone - part);
        }
    }

    /// Where the bytes of an address range really are. Addresses outside of the device's range are the program's own.
    pub(crate) fn bytes(&self, address: u64, length: u64) -> Result<u64, Code> {
        if !self.memory.space.contains(address) {
            return Ok(address);
        }
        let end = address.checked_add(length).ok_or(Code::INVALID_VALUE)?;
        let block = self.memory.find(address).filter(|(base, block)| end <= base + block.size);
        match block {
            Some((_, block)) if block.kind == Kind::Managed => Ok(address),
            Some((_, Block { kind: Kind::Graph { live: false }, .. })) => Err(Code::INVALID_VALUE),
            Some(_) => Ok(self.memory.space.shadow(address)),
            None if self.virtual_memory.is_mapped(Range { start: address, end }) => {
                Ok(self.memory.space.shadow(address))
            }
            None => Err(Code::INVALID_VALUE),
        }
    }

    /// Where a number of 4 or 8 bytes really is.
    pub(crate) fn word(&self, address: u64, is_long: bool) -> Result<u64, Code> {
        let length = if is_long { 8 } else { 4 };
        let bytes = self.bytes(address, length)?;
        if bytes == 0 || bytes % length != 0 { Err(Code::INVALID_VALUE) } else { Ok(bytes) }
    }

    /// Makes an array of so many levels, for the current context.
    pub(crate) fn create_array(&mut self, shape: Shape, levels: u32) -> Result<usize, Code> {
        let size = shape.size(levels).ok_or(Code::INVALID_VALUE)?;
        let (context, device) = (super::context::current(), self.current()?.device);
        // Small arrays share pages as other memory does, but with one another; they are charged by their blocks.
        let page = self.machine.rounding.max(1);
        let charged = if size > page / 2 { size.checked_next_multiple_of(page) } else { Some(size) };
        let charged = charged.ok_or(Code::OUT_OF_MEMORY)?;
        let block = Block { size, charged, device, context, kind: Kind::Device, id: 0 };
        let address = self.place_charged(charged, ALIGNMENT, block)?;
        Ok(self.arrays.add(Array { context, device, shape, levels, address, level_of: None }))
    }

    pub(crate) fn destroy_array(&mut self, handle: usize) -> Result<(), Code> {
        let array = self.arrays.remove(handle)?;
        if array.level_of.is_some() {
            return Ok(());
        }
        let levels = self.arrays.iter().filter(|(_, level)| level.level_of == Some(handle));
        let levels: Vec<usize> = levels.map(|(level, _)| level).collect();
        for level in levels {
            drop(self.arrays.remove(level));
        }
        self.free_block(array.address)
    }
}

// === impl Shape ===

impl Shape {
    /// Bytes of an element.
    pub(crate) fn element(&self) -> Option<u64> {
        let channel = match self.format {
            0x01 | 0x08 => 1,
            0x02 | 0x09 | 0x10 => 2,
            0x03 | 0x0a | 0x20 => 4,
            _ => return None,
        };
        matches!(self.channels, 1 | 2 | 4).then(|| channel * u64::from(self.channels))
    }

    /// Bytes that the card keeps for an array: rows in tiles of 64 bytes by 8 lines, in blocks of 64 KiB.
    pub(crate) fn size(&self, levels: u32) -> Option<u64> {
        const TILE: (u64, u64) = (64, 8);
        const BLOCK: u64 = 64 << 10;
        let element = self.element()?;
        let (width, height, depth) = (self.width as u64, self.height.max(1) as u64, self.depth.max(1) as u64);
        let level = |level: u32| {
            let part = |length: u64| (length >> level.min(63)).max(1);
            let row = part(width).checked_mul(element)?.checked_next_multiple_of(TILE.0)?;
            row.checked_mul(part(height).next_multiple_of(TILE.1))?.checked_mul(part(depth))
        };
        let sum = (0..levels.max(1)).try_fold(0u64, |sum, number| sum.checked_add(level(number)?))?;
        if width == 0 { None } else { sum.checked_next_multiple_of(BLOCK) }
    }
}

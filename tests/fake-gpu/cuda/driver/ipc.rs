//! Memory that another process has allocated.
//!
//! An exported block is a small file in the directory of the state, there for as long as the block. The card is charged by
//! the exporter alone.

use std::path::PathBuf;
use std::{fs, process};

use super::Driver;
use super::memory::{Block, Kind};
use crate::codes::Code;

/// What a handle says, in eight-byte words.
const MARK: u64 = u64::from_le_bytes(*b"fake-ipc");

// === impl Driver ===

impl Driver {
    /// The file of an exported block of this process.
    pub(crate) fn export_path(&self, id: u64) -> PathBuf {
        self.path_of(u64::from(process::id()), id)
    }

    fn path_of(&self, pid: u64, id: u64) -> PathBuf {
        self.memory.state.join(format!("{pid}-{id}.ipc"))
    }

    /// A handle to the block that an address lies in.
    pub(crate) fn export_block(&mut self, address: u64) -> Result<[u64; 8], Code> {
        let (base, block) = self.memory.find(address).ok_or(Code::INVALID_VALUE)?;
        if block.kind != Kind::Device {
            return Err(Code::INVALID_VALUE);
        }
        let card = self.devices[block.device].card.uuid.as_str();
        fs::write(self.export_path(block.id), card).map_err(|_io| Code::MAP_FAILED)?;
        let (id, size) = (block.id, block.size);
        self.memory.exported.insert(id);
        Ok([MARK, process::id().into(), id, size, address - base, 0, 0, 0])
    }

    /// The address of another process's block in this one.
    pub(crate) fn import_block(&mut self, handle: [u64; 8]) -> Result<u64, Code> {
        let [mark, pid, id, size, offset, ..] = handle;
        if mark != MARK || size == 0 || offset >= size {
            return Err(Code::INVALID_VALUE);
        }
        if pid == u64::from(process::id()) {
            return Err(Code::INVALID_CONTEXT);
        }
        let card = fs::read_to_string(self.path_of(pid, id)).map_err(|_gone| Code::MAP_FAILED)?;
        let device = self.devices.iter().position(|device| device.card.uuid == card).ok_or(Code::INVALID_DEVICE)?;
        let context = super::context::current();
        self.place(size, Block { size, charged: 0, device, context, kind: Kind::Ipc, id: 0 })
    }
}

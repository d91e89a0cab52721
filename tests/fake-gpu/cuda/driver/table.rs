//! Objects behind handles.

use crate::codes::Code;

/// Objects by handle. A handle is never given out twice, so that one that was destroyed stays invalid.
pub(crate) struct Table<T> {
    /// Tells this table's handles from those of others.
    tag: usize,
    items: Vec<Option<T>>,
}

/// Handles are this far apart, like pointers to something.
const STRIDE: usize = 16;

// === impl Table ===

impl<T> Table<T> {
    pub(crate) fn new(kind: u8) -> Self {
        Self { tag: 0x4641_0000_0000_0000_usize >> 16 | (kind as usize) << 36, items: Vec::new() }
    }

    pub(crate) fn add(&mut self, item: T) -> usize {
        self.items.push(Some(item));
        self.tag + (self.items.len() - 1) * STRIDE
    }

    pub(crate) fn get(&self, handle: usize) -> Result<&T, Code> {
        self.index(handle).and_then(|index| self.items.get(index)?.as_ref()).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Result<&mut T, Code> {
        let index = self.index(handle);
        index.and_then(|index| self.items.get_mut(index)?.as_mut()).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Result<T, Code> {
        let index = self.index(handle);
        index.and_then(|index| self.items.get_mut(index)?.take()).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let present = self.items.iter().enumerate();
        present.filter_map(|(index, item)| Some((self.tag + index * STRIDE, item.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let tag = self.tag;
        let present = self.items.iter_mut().enumerate();
        present.filter_map(move |(index, item)| Some((tag + index * STRIDE, item.as_mut()?)))
    }

    fn index(&self, handle: usize) -> Option<usize> {
        let offset = handle.checked_sub(self.tag)?;
        (offset % STRIDE == 0).then_some(offset / STRIDE)
    }
}

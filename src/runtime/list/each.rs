//! Items that are decoded one by one.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::{Items, ListError};

/// Receiver that decodes each item and passes it on.
#[derive(Debug)]
pub struct Each<T, F> {
    take: F,
    item: PhantomData<fn(T)>,
}

/// A list that can't be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ItemError {
    /// What isn't a list.
    #[error("not a list: {0}")]
    List(#[from] ListError),
    /// An item that can't be decoded.
    #[error("items[{index}]: {error}")]
    Item {
        /// Position of the item, on its page.
        index: usize,
        /// What is wrong; line and column are those of the item.
        error: serde_json::Error,
    },
}

// === impl Each ===

impl<T: DeserializeOwned, F: FnMut(T)> Each<T, F> {
    /// Passes the items to `take`.
    pub fn new(take: F) -> Self {
        Self { take, item: PhantomData }
    }
}

impl<T: DeserializeOwned, F: FnMut(T)> Items for Each<T, F> {
    type Error = ItemError;

    fn item(&mut self, index: usize, text: &[u8]) -> Result<(), ItemError> {
        let item = serde_json::from_slice(text).map_err(|error| ItemError::Item { index, error })?;
        (self.take)(item);
        Ok(())
    }
}

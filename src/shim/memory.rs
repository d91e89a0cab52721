//! Memory: every byte that the driver charges is first reserved in the container's books.

pub(crate) mod shown;

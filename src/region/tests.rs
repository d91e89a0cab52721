//! What the modules' tests share, and how they work together.

mod ranks;
mod shares;

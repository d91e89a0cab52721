//! What the modules' tests share, and how they work together.

mod shares;

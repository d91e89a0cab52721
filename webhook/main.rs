//! The cluster side of Divvy.

fn main() {}

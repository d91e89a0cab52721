//! The driver's C functions: pointers and codes outside, [`crate::driver`] inside.
//!
//! The tables of functions are the library's table of contents. Each says with which version of CUDA a function came, which
//! is what `cuGetProcAddress` goes by. Functions that differ in nothing but their name and the default stream are one entry.
//!
//! Handles are numbers here, and enumerations too: a program may pass any.
#![allow(non_snake_case, reason = "the names are CUDA's")]

mod array;
mod context;
mod copy;
mod device;
mod entry;
mod event;
mod fill;
mod graph;
mod graph_nodes;
mod host;
mod launch;
mod library;
mod memory;
mod module;
mod moves;
mod pool;
mod refused;
mod resolve;
mod stream;
mod types;
mod vmm;
mod write;

use entry::Entry;

use crate::codes::Code;

/// An exported function.
pub(crate) struct Symbol {
    name: &'static str,
    /// The version of CUDA that it came with.
    since: i32,
    address: *const (),
    /// Bytes of each argument.
    arguments: &'static [usize],
}

const GROUPS: [&[Symbol]; 19] = [
    array::SYMBOLS,
    context::SYMBOLS,
    copy::SYMBOLS,
    device::SYMBOLS,
    entry::SYMBOLS,
    event::SYMBOLS,
    fill::SYMBOLS,
    graph::SYMBOLS,
    graph_nodes::SYMBOLS,
    host::SYMBOLS,
    launch::SYMBOLS,
    library::SYMBOLS,
    memory::SYMBOLS,
    module::SYMBOLS,
    pool::SYMBOLS,
    refused::SYMBOLS,
    resolve::SYMBOLS,
    stream::SYMBOLS,
    vmm::SYMBOLS,
];

fn symbols() -> impl Iterator<Item = &'static Symbol> {
    GROUPS.into_iter().flatten()
}

/// Whether the library exports a function of this name.
fn is_known(name: &str) -> bool {
    symbols().any(|symbol| symbol.name == name)
}

/// Every function that the library exports, with the bytes of each of its arguments.
pub fn signatures() -> impl Iterator<Item = (&'static str, &'static [usize])> {
    symbols().map(|symbol| (symbol.name, symbol.arguments))
}

/// Every function that the library exports, with the version of CUDA that it came with.
pub fn versions() -> impl Iterator<Item = (&'static str, i32)> {
    symbols().map(|symbol| (symbol.name, symbol.since))
}

/// Defines C functions. The body knows as `$me` which of the names was called.
macro_rules! functions {
    ($([$($since:literal $name:ident),+ $(,)?] $arguments:tt = |$me:tt| $body:expr;)*) => {
        pub(super) const SYMBOLS: &[super::Symbol] = &[$($(super::symbol!($since $name $arguments)),+),*];
        $($(super::function!($name $arguments $me $body);)+)*
    };
}

macro_rules! symbol {
    ($since:literal $name:ident ($($argument:ident: $type:ty),* $(,)?)) => {
        super::Symbol {
            name: stringify!($name),
            since: $since,
            address: $name as unsafe extern "C" fn($($type),*) -> u32 as *const (),
            arguments: &[$(size_of::<$type>()),*],
        }
    };
}

macro_rules! function {
    ($name:ident ($($argument:ident: $type:ty),* $(,)?) $me:tt $body:expr) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            let body = || -> Result<(), $crate::codes::Code> {
                let $me = super::Entry::new(stringify!($name));
                // SAFETY: by CUDA's contract pointers are null or valid for what the function reads and writes.
                #[allow(unused_unsafe, reason = "some bodies touch no pointer")]
                unsafe { $body }
            };
            super::code(body())
        }
    };
}

use {function, functions, symbol};

fn code(answer: Result<(), Code>) -> u32 {
    match answer {
        Ok(()) => Code::SUCCESS.0,
        Err(code) => code.0,
    }
}

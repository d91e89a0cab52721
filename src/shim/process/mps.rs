//! The variables that make a process a client of CUDA's multi-process service, and limit it (NVIDIA's MPS documentation).
//!
//! The container is given them, but a program can change its environment before it asks for the driver. What the limits file
//! says is put back then. The values are those of `divvy-node`'s `container/isolation/mps.rs`.

use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write as _;
use core::mem;
use core::ptr;

use divvy_region::Tier;
use divvy_region::limits::{Cards, Limits};

use super::paths;
use crate::linker;
use crate::text::Text;

const PIPE_DIRECTORY: &CStr = c"CUDA_MPS_PIPE_DIRECTORY";
const MEMORY_LIMIT: &CStr = c"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
const THREAD_PERCENTAGE: &CStr = c"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
/// `63=17592186044415M,` for each of 64 cards.
const LONGEST: usize = 64 * 20;

type Getenv = unsafe extern "C" fn(*const c_char) -> *const c_char;
type Setenv = unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int;

/// Sets the variables that don't say what they should. The environment of a process that leaves them alone isn't touched:
/// other threads may be reading it.
pub(super) fn restore_environment(limits: &Limits<&str, Cards<'_>>) {
    if limits.terms.tier != Tier::Mps {
        return;
    }
    set(PIPE_DIRECTORY, paths::SERVICE);
    if limits.cards.clone().all(|card| card.exclusive) {
        return;
    }
    set(MEMORY_LIMIT, memory(limits).as_c());
    // Without a guaranteed share there is no cap, and a tenant may have one of its own.
    let cores = limits.cards.clone().map(|card| card.cores).min().unwrap_or(0);
    if cores > 0 {
        set(THREAD_PERCENTAGE, Text::<16>::formatted(format_args!("{cores}")).as_c());
    }
}

/// The largest share for each of the driver's ordinals: which card it gives which isn't known before it has started.
fn memory(limits: &Limits<&str, Cards<'_>>) -> Text<LONGEST> {
    let most = limits.cards.clone().map(|card| card.memory_mib).max().unwrap_or(0);
    let mut text = Text::new();
    for ordinal in 0..limits.cards.clone().count() {
        let comma = if ordinal == 0 { "" } else { "," };
        let _always_fits = write!(text, "{comma}{ordinal}={most}M");
    }
    text
}

fn set(name: &CStr, value: &CStr) {
    let getenv = linker::of_libc(c"getenv");
    let setenv = linker::of_libc(c"setenv");
    if getenv == 0 || setenv == 0 {
        return;
    }
    // SAFETY: the C library's functions of these names have these arguments.
    let (getenv, setenv) = unsafe {
        (
            mem::transmute::<*const (), Getenv>(ptr::with_exposed_provenance(getenv)),
            mem::transmute::<*const (), Setenv>(ptr::with_exposed_provenance(setenv)),
        )
    };
    // SAFETY: a name; what it gives is null or text that stays until the variable is set.
    let is_right = unsafe {
        let found = getenv(name.as_ptr());
        !found.is_null() && CStr::from_ptr(found) == value
    };
    if !is_right {
        // SAFETY: texts, which are copied.
        unsafe { setenv(name.as_ptr(), value.as_ptr(), 1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mps_ordinal_has_the_largest_share() {
        let of = |cards: &str| {
            let file = ["divvy-limits v1\ntier mps\ncompute cap\npod u ns p\ncontainer c\n", cards, "end\n"].concat();
            let text = memory(&Limits::read(&file).expect("sound"));
            text.as_c().to_str().expect("text").to_owned()
        };
        let card = |number: usize, memory: u64| format!("card GPU-{number} memory-mib {memory} cores 0 exclusive 0\n");
        assert_eq!(of(&card(0, 8192)), "0=8192M");
        assert_eq!(of(&[card(0, 300), card(1, 500)].concat()), "0=500M,1=500M");
        let all: String = (0..64).map(|number| card(number, (1 << 44) - 1)).collect();
        assert!(of(&all).ends_with(",63=17592186044415M"), "the longest of all fits");
    }
}

//! Functions by name, by version and by default stream.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, c_int, c_void};
use std::{mem, ptr};

use driver_api::{Code, Cuda, INVALID_VALUE, NOT_FOUND, SUCCESS};
use fake_cuda::{Gain, Machine};

use crate::program::Site;

const PER_THREAD: u64 = 2;

/// What `cuGetProcAddress_v2` answers: status and address.
pub(crate) fn look_up(cuda: &Cuda, name: &str, version: c_int, flags: u64) -> (u32, *mut c_void) {
    let (mut found, mut status) = (ptr::null_mut(), 9_u32);
    let name = CString::new(name).unwrap();
    let to = (&raw mut status).cast();
    assert_eq!(cuda.cuGetProcAddress_v2(name.as_ptr(), &raw mut found, version, flags, to), SUCCESS);
    (status, found)
}

#[test]
fn a_version_chooses_the_newest_revision_that_it_knows() {
    let cuda = Site::small().program();
    assert_eq!(look_up(&cuda, "cuMemAlloc", 13_000, 0), (0, cuda.symbol("cuMemAlloc_v2")));
    assert_eq!(look_up(&cuda, "cuMemAlloc", 3020, 0), (0, cuda.symbol("cuMemAlloc_v2")));
    assert_eq!(look_up(&cuda, "cuMemAlloc", 3010, 0), (0, cuda.symbol("cuMemAlloc")));
    assert_ne!(cuda.symbol("cuMemAlloc"), cuda.symbol("cuMemAlloc_v2"));
    assert_eq!(look_up(&cuda, "cuCtxCreate", 11_080, 0).1, cuda.symbol("cuCtxCreate_v3"));
    assert_eq!(look_up(&cuda, "cuCtxCreate", 12_050, 0).1, cuda.symbol("cuCtxCreate_v4"));
    assert_eq!(look_up(&cuda, "cuGraphInstantiate", 11_080, 0).1, cuda.symbol("cuGraphInstantiate_v2"));
    assert_eq!(look_up(&cuda, "cuGraphInstantiate", 12_000, 0).1, cuda.symbol("cuGraphInstantiateWithFlags"));
}

#[test]
fn per_thread_default_streams_have_functions_of_their_own() {
    let cuda = Site::small().program();
    assert_eq!(look_up(&cuda, "cuLaunchKernel", 12_000, PER_THREAD).1, cuda.symbol("cuLaunchKernel_ptsz"));
    assert_eq!(look_up(&cuda, "cuMemcpyHtoD", 12_000, PER_THREAD).1, cuda.symbol("cuMemcpyHtoD_v2_ptds"));
    assert_eq!(look_up(&cuda, "cuLaunchKernel", 12_000, 0).1, cuda.symbol("cuLaunchKernel"));
    assert_eq!(look_up(&cuda, "cuMemAlloc", 12_000, PER_THREAD).1, cuda.symbol("cuMemAlloc_v2"), "it has no stream");
    assert_eq!(look_up(&cuda, "cuLaunchKernel", 6000, PER_THREAD).1, cuda.symbol("cuLaunchKernel"), "before 7.0");
}

#[test]
fn the_resolver_says_why_there_is_no_function() {
    let cuda = Site::small().program();
    assert_eq!(look_up(&cuda, "cuNoSuchThing", 12_000, 0), (1, ptr::null_mut()));
    assert_eq!(look_up(&cuda, "cuMemAlloc_v2", 12_000, 0), (1, ptr::null_mut()), "revisions aren't names");
    assert_eq!(look_up(&cuda, "cuMemAllocAsync", 11_010, 0), (2, ptr::null_mut()));
    let (mut found, name) = (ptr::null_mut(), c"cuNoSuchThing".as_ptr());
    assert_eq!(cuda.cuGetProcAddress(name, &raw mut found, 12_000, 0), NOT_FOUND, "the first form has no status");
    let name = c"cuInit".as_ptr();
    assert_eq!(cuda.cuGetProcAddress_v2(name, &raw mut found, 13_010, 0, ptr::null_mut()), INVALID_VALUE, "too new");
    assert_eq!(cuda.cuGetProcAddress_v2(name, &raw mut found, 2000, 0, ptr::null_mut()), SUCCESS, "no status wanted");
}

#[test]
fn the_resolver_finds_itself() {
    let cuda = Site::small().program();
    assert_eq!(look_up(&cuda, "cuGetProcAddress", 11_080, 0).1, cuda.symbol("cuGetProcAddress"));
    assert_eq!(look_up(&cuda, "cuGetProcAddress", 12_000, 0).1, cuda.symbol("cuGetProcAddress_v2"));
}

#[test]
fn a_preloaded_library_with_the_same_names_doesnt_get_between() {
    let (site, other) = (Site::small(), Site::small());
    let mut worker = site.worker_with("resolve cuMemAlloc_v2", &[("LD_PRELOAD", other.library().to_str().unwrap())]);
    assert!(worker.wait().unwrap());
}

#[test]
fn an_older_driver_lacks_functions_and_a_newer_one_has_more() {
    let gain = Gain { like: "cuMemAlloc_v2".to_owned(), since: 13_000 };
    let machine = Machine {
        lacks: BTreeSet::from(["cuMemAllocAsync".to_owned()]),
        gains: BTreeMap::from([("cuMemAlloc_v3".to_owned(), gain)]),
        ..Machine::uniform(1, 1 << 30)
    };
    let cuda = Site::new(&machine).program();
    assert!(cuda.symbol("cuMemAllocAsync").is_null());
    assert!(!cuda.symbol("cuMemAllocAsync_ptsz").is_null() && !cuda.symbol("cuMemAlloc_v2").is_null());
    assert_eq!(look_up(&cuda, "cuMemAllocAsync", 12_000, 0).0, 2, "for the per-thread form alone");
    assert_eq!(look_up(&cuda, "cuMemAlloc", 12_080, 0).1, cuda.symbol("cuMemAlloc_v2"));

    let (status, newer) = look_up(&cuda, "cuMemAlloc", 13_000, 0);
    assert!(status == 0 && newer != cuda.symbol("cuMemAlloc_v2"));
    // SAFETY: the function does what `cuMemAlloc_v2` does.
    let newer = unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut u64, usize) -> Code>(newer) };
    let before = cuda.info().0;
    // SAFETY: the place is valid for writes.
    let address = cuda.get(|_, to| unsafe { newer(to, 2 << 20) });
    assert_eq!(cuda.info().0, before - (2 << 20));
    assert_eq!(cuda.cuMemFree_v2(address), SUCCESS);
}

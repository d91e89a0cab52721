//! Functions by name, by version and by default stream.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr;

use fake_cuda::{Gain, Machine};

use crate::program::{INVALID_VALUE, SUCCESS, Site};

const PER_THREAD: u64 = 2;

#[test]
fn a_version_chooses_the_newest_revision_that_it_knows() {
    let cuda = Site::small().program();
    assert_eq!(cuda.look_up("cuMemAlloc", 13_000, 0), (0, cuda.address("cuMemAlloc_v2")));
    assert_eq!(cuda.look_up("cuMemAlloc", 3020, 0), (0, cuda.address("cuMemAlloc_v2")));
    assert_eq!(cuda.look_up("cuMemAlloc", 3010, 0), (0, cuda.address("cuMemAlloc")));
    assert_ne!(cuda.address("cuMemAlloc"), cuda.address("cuMemAlloc_v2"));
    assert_eq!(cuda.look_up("cuCtxCreate", 11_080, 0).1, cuda.address("cuCtxCreate_v3"));
    assert_eq!(cuda.look_up("cuCtxCreate", 12_050, 0).1, cuda.address("cuCtxCreate_v4"));
    assert_eq!(cuda.look_up("cuGraphInstantiate", 11_080, 0).1, cuda.address("cuGraphInstantiate_v2"));
    assert_eq!(cuda.look_up("cuGraphInstantiate", 12_000, 0).1, cuda.address("cuGraphInstantiateWithFlags"));
}

#[test]
fn per_thread_default_streams_have_functions_of_their_own() {
    let cuda = Site::small().program();
    assert_eq!(cuda.look_up("cuLaunchKernel", 12_000, PER_THREAD).1, cuda.address("cuLaunchKernel_ptsz"));
    assert_eq!(cuda.look_up("cuMemcpyHtoD", 12_000, PER_THREAD).1, cuda.address("cuMemcpyHtoD_v2_ptds"));
    assert_eq!(cuda.look_up("cuLaunchKernel", 12_000, 0).1, cuda.address("cuLaunchKernel"));
    assert_eq!(cuda.look_up("cuMemAlloc", 12_000, PER_THREAD).1, cuda.address("cuMemAlloc_v2"), "it has no stream");
    assert_eq!(cuda.look_up("cuLaunchKernel", 6000, PER_THREAD).1, cuda.address("cuLaunchKernel"), "before 7.0");
}

#[test]
fn the_resolver_says_why_there_is_no_function() {
    let cuda = Site::small().program();
    assert_eq!(cuda.look_up("cuNoSuchThing", 12_000, 0), (1, 0));
    assert_eq!(cuda.look_up("cuMemAlloc_v2", 12_000, 0), (1, 0), "revisions aren't names");
    assert_eq!(cuda.look_up("cuMemAllocAsync", 11_010, 0), (2, 0));
    let (mut found, name) = (ptr::null_mut(), c"cuNoSuchThing".as_ptr());
    assert_eq!(cuda.cuGetProcAddress(name, &raw mut found, 12_000, 0), 500, "the first form has no status");
    let name = c"cuInit".as_ptr();
    assert_eq!(cuda.cuGetProcAddress_v2(name, &raw mut found, 13_010, 0, ptr::null_mut()), INVALID_VALUE, "too new");
    assert_eq!(cuda.cuGetProcAddress_v2(name, &raw mut found, 2000, 0, ptr::null_mut()), SUCCESS, "no status wanted");
}

#[test]
fn the_resolver_finds_itself() {
    let cuda = Site::small().program();
    assert_eq!(cuda.look_up("cuGetProcAddress", 11_080, 0).1, cuda.address("cuGetProcAddress"));
    assert_eq!(cuda.look_up("cuGetProcAddress", 12_000, 0).1, cuda.address("cuGetProcAddress_v2"));
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
    assert!(!cuda.has("cuMemAllocAsync"));
    assert!(cuda.has("cuMemAllocAsync_ptsz") && cuda.has("cuMemAlloc_v2"));
    assert_eq!(cuda.look_up("cuMemAllocAsync", 12_000, 0).0, 2, "for the per-thread form alone");
    assert_eq!(cuda.look_up("cuMemAlloc", 12_080, 0).1, cuda.address("cuMemAlloc_v2"));

    let (status, newer) = cuda.look_up("cuMemAlloc", 13_000, 0);
    assert!(status == 0 && newer != cuda.address("cuMemAlloc_v2"));
    let newer: *const () = ptr::with_exposed_provenance(newer);
    // SAFETY: the function does what `cuMemAlloc_v2` does.
    let newer = unsafe { std::mem::transmute::<*const (), unsafe extern "C" fn(*mut u64, usize) -> u32>(newer) };
    let before = cuda.info().0;
    // SAFETY: the place is valid for writes.
    let address = cuda.get(|_, to| unsafe { newer(to, 1000) });
    assert_eq!(cuda.info().0, before - 1000);
    assert_eq!(cuda.cuMemFree_v2(address), SUCCESS);
}

//! Memory: what is charged, for how long, and what is in it.

use std::ptr;

use driver_api::sys::CUmem_advise::{CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION};
use driver_api::sys::CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
use driver_api::sys::CUmemPool_attribute::{
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH,
};
use driver_api::{
    CONTEXT_IS_DESTROYED, Cuda, DEFAULT_STREAM, HOST, INVALID_DEVICE, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS,
    ipc_handle, on_device,
};
use fake_cuda::Machine;

use crate::program::{GIB, MIB, Site, eventually};

#[test]
fn memory_is_charged_by_pages_and_a_full_card_is_full() {
    let cuda = Site::small().program();
    assert_eq!(cuda.info(), (GIB, GIB));
    let (one, odd) = (cuda.allocate(1), cuda.allocate(12_345));
    assert_eq!((odd - one, cuda.info().0), (512, GIB - 2 * MIB), "small ones share a page");
    let large = cuda.allocate(MIB + 1);
    assert_eq!(cuda.info().0, GIB - 4 * MIB, "larger ones have their own");
    let mut address = 0;
    assert_eq!(cuda.cuMemAlloc_v2(&raw mut address, (GIB - 4 * MIB + 1) as usize), OUT_OF_MEMORY);
    let rest = cuda.allocate(GIB - 4 * MIB);
    assert_eq!(cuda.info().0, 0);
    let shared = cuda.allocate(MIB);
    assert_eq!(cuda.cuMemAlloc_v2(&raw mut address, MIB as usize), OUT_OF_MEMORY, "the page has no room for it");
    assert_eq!((cuda.cuMemFree_v2(one), cuda.cuMemFree_v2(shared), cuda.info().0), (SUCCESS, SUCCESS, 0));
    for freed in [odd, large, rest] {
        assert_eq!(cuda.cuMemFree_v2(freed), SUCCESS);
    }
    assert_eq!(cuda.info().0, GIB);
    assert_eq!(cuda.cuMemFree_v2(odd), INVALID_VALUE, "freed twice");
    assert_eq!(cuda.cuMemAlloc_v2(&raw mut address, 0), INVALID_VALUE);
}

#[test]
fn contexts_share_no_page() {
    let cuda = Site::small().program();
    cuda.allocate(1);
    let context = cuda.get(|cuda, to| cuda.cuCtxCreate_v2(to, 0, 0));
    cuda.allocate(1);
    assert_eq!(cuda.info().0, GIB - 4 * MIB);
    assert_eq!((cuda.cuCtxDestroy_v2(context), cuda.info().0), (SUCCESS, GIB - 2 * MIB));
}

#[test]
fn contexts_cost_and_take_their_memory_with_them() {
    let mut machine = Machine::uniform(1, GIB);
    machine.cards[0].context_bytes = 100 * MIB;
    let cuda = Site::new(&machine).program();
    assert_eq!(cuda.info().0, GIB - 100 * MIB, "the primary context");
    let context = cuda.get(|cuda, to| cuda.cuCtxCreate_v2(to, 0, 0));
    cuda.allocate(2 * MIB);
    assert_eq!(cuda.info().0, GIB - 202 * MIB);
    assert_eq!(cuda.cuCtxDestroy_v2(context), SUCCESS);
    assert_eq!(cuda.info().0, GIB - 100 * MIB);
    assert_eq!(cuda.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
    assert_eq!(
        cuda.cuMemGetInfo_v2(ptr::null_mut(), ptr::null_mut()),
        CONTEXT_IS_DESTROYED,
        "its context is destroyed"
    );
}

#[test]
fn graphs_and_modules_cost_until_they_are_destroyed() {
    let mut machine = Machine::uniform(1, GIB);
    (machine.cards[0].graph_node_bytes, machine.cards[0].module_bytes) = (MIB, 10 * MIB);
    let cuda = Site::new(&machine).program();
    let module = cuda.get(|cuda, to| cuda.cuModuleLoadData(to, c"any".as_ptr().cast()));
    let (stream, busy) =
        (cuda.stream(), cuda.get(|cuda, to| cuda.cuModuleGetFunction(to, module, c"busy_ns".as_ptr())));
    assert_eq!(cuda.info().0, GIB, "nothing was launched");
    assert_eq!(cuda.launch(busy, 1, stream), SUCCESS);
    assert_eq!(cuda.info().0, GIB - 10 * MIB);
    let exec = cuda.captured(stream, || (0..20).for_each(|_| assert_eq!(cuda.launch(busy, 1, stream), SUCCESS)));
    assert_eq!(cuda.info().0, GIB - 30 * MIB);
    assert_eq!(cuda.cuGraphExecDestroy(exec), SUCCESS);
    assert_eq!(cuda.info().0, GIB - 10 * MIB);
    assert_eq!((cuda.cuCtxSynchronize(), cuda.cuModuleUnload(module)), (SUCCESS, SUCCESS));
    assert_eq!(cuda.info().0, GIB);
}

#[test]
fn processes_share_a_card_and_a_killed_one_gives_all_back() {
    let site = Site::small();
    let cuda = site.program();
    let mut other = site.worker(&format!("allocate {}", 600 * MIB));
    eventually(|| (cuda.info().0 == GIB - 600 * MIB).then_some(()));
    let mut address = 0;
    assert_eq!(cuda.cuMemAlloc_v2(&raw mut address, (500 * MIB) as usize), OUT_OF_MEMORY);
    assert_eq!(other.usage(site.card(0)).memory, 600 * MIB);
    other.kill();
    assert!(!other.wait().unwrap());
    assert_eq!(cuda.info().0, GIB);
    cuda.allocate(GIB);
    let dead = other.usage(site.card(0));
    assert_eq!((dead.alive, dead.memory, dead.memory_peak), (false, 0, 600 * MIB));
}

#[test]
fn what_is_copied_to_the_card_comes_back() {
    let cuda = Site::small().program();
    let address = cuda.allocate(4096);
    let sent: Vec<u8> = (0..4096u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut back = vec![0u8; 4096];
    assert_eq!(cuda.cuMemcpyHtoD_v2(address, sent.as_ptr().cast(), sent.len()), SUCCESS);
    assert_eq!(cuda.cuMemsetD8_v2(address + 10, 7, 5), SUCCESS);
    assert_eq!(cuda.cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address, back.len()), SUCCESS);
    assert_eq!((&back[..10], &back[10..15], &back[15..]), (&sent[..10], &[7; 5][..], &sent[15..]));
    let (to, beyond) = (back.as_mut_ptr().cast(), 4097);
    assert_eq!(cuda.cuMemcpyDtoH_v2(to, address, beyond), INVALID_VALUE, "one byte too many");
}

#[test]
fn managed_memory_may_exceed_the_card() {
    let cuda = Site::small().program();
    let address = cuda.get(|cuda, to| cuda.cuMemAllocManaged(to, (4 * GIB) as usize, 1));
    assert_eq!(cuda.info().0, GIB);
    let bytes: *mut u8 = ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: managed memory can be touched by the program.
    unsafe { bytes.add(3 << 30).write(42) };
    let mut back = 0u8;
    assert_eq!(cuda.cuMemcpyDtoH_v2((&raw mut back).cast(), address + (3 << 30), 1), SUCCESS);
    assert_eq!(back, 42);
    assert_eq!(cuda.cuMemFree_v2(address), SUCCESS);
}

#[test]
fn managed_memory_is_evicted_for_any_process() {
    let site = Site::small();
    let cuda = site.program();
    let managed = || cuda.get(|cuda, to| cuda.cuMemAllocManaged(to, (GIB / 2) as usize, 1));
    let (old, new) = (managed(), managed());
    let bring = |address, place| cuda.cuMemPrefetchAsync_v2(address, (GIB / 2) as usize, place, 0, DEFAULT_STREAM);
    for address in [old, new] {
        assert_eq!(bring(address, on_device(0)), SUCCESS);
    }
    let there = || site.card(0).usage_of(std::process::id()).map(|usage| (usage.managed, usage.memory - usage.managed));
    assert_eq!((there(), cuda.info().0), (Some((GIB, 0)), 0));
    let plain = cuda.allocate(GIB / 4);
    assert_eq!((there(), cuda.info().0), (Some((GIB / 4 * 3, GIB / 4)), 0));
    assert_eq!(bring(new, HOST), SUCCESS);
    assert_eq!(there(), Some((GIB / 4, GIB / 4)), "what had been there longest was evicted");
    assert_eq!(bring(new, on_device(0)), SUCCESS);
    let other = site.worker(&format!("allocate {}", GIB / 8 * 5));
    eventually(|| (other.usage(site.card(0)).memory == GIB / 8 * 5).then_some(()));
    assert_eq!(there(), Some((GIB / 8, GIB / 4)));
    let mut address = 0;
    assert_eq!(cuda.cuMemAlloc_v2(&raw mut address, (GIB / 4) as usize), OUT_OF_MEMORY, "that isn't all managed");
    assert_eq!(there(), Some((GIB / 8, GIB / 4)));
    for address in [old, new, plain] {
        assert_eq!(cuda.cuMemFree_v2(address), SUCCESS);
    }
    assert_eq!(there(), Some((0, 0)));
}

#[test]
fn advice_on_where_managed_memory_belongs_is_remembered() {
    let cuda = Site::small().program();
    let address = cuda.get(|cuda, to| cuda.cuMemAllocManaged(to, MIB as usize, 1));
    let advise = |advice, place| cuda.cuMemAdvise_v2(address, MIB as usize, advice, place);
    let preferred = |address| {
        let number = CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION;
        cuda.try_get::<i32>(|cuda, to| cuda.cuMemRangeGetAttribute(to.cast(), 4, number, address, MIB as usize))
    };
    assert_eq!(preferred(address), Ok(-2), "nowhere");
    for (place, ordinal) in [(on_device(0), 0), (HOST, -1)] {
        assert_eq!(advise(CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place), SUCCESS);
        assert_eq!(preferred(address), Ok(ordinal));
    }
    assert_eq!(advise(CU_MEM_ADVISE_SET_PREFERRED_LOCATION, on_device(1)), INVALID_DEVICE);
    assert_eq!(advise(CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, HOST), SUCCESS);
    assert_eq!(preferred(address), Ok(-2));
    assert_eq!(preferred(cuda.allocate(MIB)), Err(INVALID_VALUE), "plain memory belongs where it is");
}

#[test]
fn a_pool_keeps_what_is_freed_until_it_is_trimmed() {
    let cuda = Site::small().program();
    let pool = cuda.get(|cuda, to| cuda.cuDeviceGetDefaultMemPool(to, 0));
    let attribute = |number| cuda.get::<u64>(|cuda, to| cuda.cuMemPoolGetAttribute(pool, number, to.cast()));
    let (reserved, used) = (CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    let (most_reserved, most_used) = (CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
    let keep = |mut bytes: u64| {
        let threshold = (&raw mut bytes).cast();
        assert_eq!(cuda.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, threshold), SUCCESS);
    };
    keep(u64::MAX);
    let address = cuda.get(|cuda, to| cuda.cuMemAllocAsync(to, (5 * MIB) as usize, DEFAULT_STREAM));
    assert_eq!((attribute(reserved), attribute(used), cuda.info().0), (6 * MIB, 5 * MIB, GIB - 6 * MIB));
    assert_eq!(cuda.cuMemFreeAsync(address, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.cuStreamSynchronize(DEFAULT_STREAM), SUCCESS);
    assert_eq!([reserved, most_reserved, used, most_used].map(attribute), [6 * MIB, 6 * MIB, 0, 5 * MIB]);
    assert_eq!(cuda.cuMemPoolTrimTo(pool, 0), SUCCESS);
    assert_eq!((attribute(reserved), cuda.info().0), (0, GIB));

    keep(0);
    let address = cuda.get(|cuda, to| cuda.cuMemAllocAsync(to, MIB as usize, DEFAULT_STREAM));
    assert_eq!(cuda.cuMemFreeAsync(address, DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.info().0, GIB - 2 * MIB);
    assert_eq!(cuda.cuStreamSynchronize(DEFAULT_STREAM), SUCCESS);
    assert_eq!(cuda.info().0, GIB, "a synchronisation trims to the threshold");
}

#[test]
fn another_process_opens_an_exported_block_and_isnt_charged() {
    let site = Site::small();
    let cuda = site.program();
    let address = cuda.allocate(MIB);
    let mut handle = [0_u8; 64];
    assert_eq!(cuda.cuIpcGetMemHandle((&raw mut handle).cast(), address + 512), SUCCESS);
    let digits: Vec<String> = handle.iter().map(|byte| format!("{byte:02x}")).collect();
    let digits = digits.concat();
    let mut other = site.worker(&format!("import {digits}"));
    assert!(other.wait().unwrap(), "the other process could open it");
    assert_eq!(other.usage(site.card(0)).memory_peak, 0);
    assert_eq!(cuda.cuMemFree_v2(address), SUCCESS);
    let mut late = site.worker(&format!("import {digits}"));
    assert!(!late.wait().unwrap(), "there is nothing any more");
}

#[test]
fn visible_cards_are_chosen_and_ordered() {
    let site = Site::new(&Machine::uniform(3, GIB));
    for (visible, expected) in [("2,0", "20"), (&Machine::uuid(1)[..12], "1"), ("1,9,0", "1"), ("0,0", "0")] {
        let mut other = site.worker_with(&format!("cards {expected}"), &[("CUDA_VISIBLE_DEVICES", visible)]);
        assert!(other.wait().unwrap(), "{visible}");
    }
}

#[test]
fn a_child_of_a_fork_has_no_driver() {
    let cuda = Site::small().program();
    // SAFETY: the child calls the function and `_exit`, and allocates nothing.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(cuda.cuCtxSynchronize().0.cast_signed());
        }
        child
    };
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 3);
}

/// Of [`another_process_opens_an_exported_block_and_isnt_charged`].
pub(crate) fn import(cuda: &Cuda, digits: &str) -> bool {
    let mut handle = [0; 64];
    for (byte, index) in handle.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[index..index + 2], 16).unwrap();
    }
    let mut address = 0;
    if cuda.cuIpcOpenMemHandle(&raw mut address, ipc_handle(handle), 1) != SUCCESS {
        return false;
    }
    let mut byte = 0u8;
    assert_eq!(cuda.cuMemcpyDtoH_v2((&raw mut byte).cast(), address, 1), SUCCESS);
    cuda.cuIpcCloseMemHandle(address) == SUCCESS
}

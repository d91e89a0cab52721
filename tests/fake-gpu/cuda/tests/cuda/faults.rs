//! What a machine can be told to do wrong.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use driver_api::{ILLEGAL_ADDRESS, OUT_OF_MEMORY, SUCCESS};
use fake_cuda::{Fault, Machine, MachineError};

use crate::program::{GIB, MIB, Site};

#[test]
fn the_third_call_fails_and_no_other() {
    let fault = Fault { code: "CUDA_ERROR_OUT_OF_MEMORY".to_owned(), nth: Some(3) };
    let faults = BTreeMap::from([("cuMemAlloc_v2".to_owned(), fault)]);
    let cuda = Site::new(&Machine { faults, ..Machine::uniform(1, GIB) }).program();
    let codes = (0..4).map(|_| cuda.cuMemAlloc_v2(&mut 0, 1));
    assert_eq!(codes.collect::<Vec<_>>(), [SUCCESS, SUCCESS, OUT_OF_MEMORY, SUCCESS]);
    assert_eq!(cuda.info().0, GIB - 2 * MIB);
}

#[test]
fn a_delayed_call_takes_its_time() {
    let delays_us = BTreeMap::from([("cuEventCreate".to_owned(), 3000)]);
    let cuda = Site::new(&Machine { delays_us, ..Machine::uniform(1, GIB) }).program();
    let started = Instant::now();
    cuda.event();
    assert!(started.elapsed() >= Duration::from_millis(3));
}

#[test]
fn a_card_may_charge_what_was_asked_for() {
    let cuda = Site::new(&Machine { rounding: 1, ..Machine::uniform(1, GIB) }).program();
    let address = cuda.allocate(1);
    assert_eq!(cuda.info().0, GIB - 1);
    assert_eq!(cuda.cuMemFree_v2(address), SUCCESS);
    assert_eq!(cuda.info().0, GIB);
}

#[test]
fn an_error_of_one_context_is_answered_by_all_calls_about_it() {
    let cuda = Site::new(&Machine::uniform(2, GIB)).program();
    let (first, stream, event) = (cuda.enter(0), cuda.stream(), cuda.event());
    let fails = cuda.function(c"read_nowhere");
    cuda.enter(1);
    let (other, busy) = (cuda.stream(), cuda.function(c"busy_ns"));
    assert_eq!(cuda.cuCtxSetCurrent(first), SUCCESS);
    assert_eq!(cuda.launch(fails, 1, stream), SUCCESS);
    assert_eq!(cuda.cuEventRecord(event, stream), SUCCESS);
    assert_eq!(cuda.cuStreamSynchronize(stream), ILLEGAL_ADDRESS);
    assert_eq!(cuda.cuMemAlloc_v2(&mut 0, 1), ILLEGAL_ADDRESS);
    assert_eq!((cuda.cuCtxSynchronize(), cuda.launch(busy, 1, stream)), (ILLEGAL_ADDRESS, ILLEGAL_ADDRESS));
    cuda.enter(1);
    assert_eq!((cuda.cuEventQuery(event), cuda.cuStreamQuery(stream)), (ILLEGAL_ADDRESS, ILLEGAL_ADDRESS));
    assert_eq!((cuda.launch(busy, 1, other), cuda.cuCtxSynchronize()), (SUCCESS, SUCCESS));
}

#[test]
fn a_machine_names_what_there_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cards.json");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Machine::read(&path, |name| fake_cuda::signatures().any(|(known, _)| known == name))
    };
    assert!(
        matches!(read(r#"{"delays_us": {"cuMemAlok": 1}}"#), Err(MachineError::Function(name)) if name == "cuMemAlok")
    );
    let fault = r#"{"faults": {"cuInit": {"code": "CUDA_ERROR_TIRED"}}}"#;
    assert!(matches!(read(fault), Err(MachineError::Code(name)) if name == "CUDA_ERROR_TIRED"));
    // A scenario of fake-nvml is a machine too.
    let scenario = r#"{"driver_version": "580.95.05", "cuda_version": 13000, "links": [], "cards": [{
        "uuid": "GPU-1", "model": "NVIDIA L4", "memory_total": 24000000000, "pci_bus_id": "00000000:17:00.0", "minor": 0
    }]}"#;
    assert_eq!(read(scenario).unwrap().cards[0].model, "NVIDIA L4");
}

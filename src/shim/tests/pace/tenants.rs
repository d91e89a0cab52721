//! What tenants do with their card.

use std::ffi::c_uint;
use std::thread;
use std::time::{Duration, Instant};

use crate::container::{listen, say, words};
use crate::cuda::{Cuda, SUCCESS};

/// `<verb> <argument> …`
#[test]
#[ignore = "a process of other tests"]
fn tenant() {
    let words = words();
    let Some((verb, arguments)) = words.split_first() else { return };
    let numbers: Vec<c_uint> = arguments.iter().map(|word| word.parse().expect("a number")).collect();
    let cuda = Cuda::start();
    let busy = cuda.function(c"busy_ns");
    let launch = |width, stream| assert_eq!(cuda.launch(busy, width, stream), SUCCESS);
    match (verb.as_str(), &*numbers) {
        // Kernels of so many nanoseconds, as fast as they are let in, in so many streams by turns.
        ("busy", [width, streams]) => {
            let streams: Vec<usize> = (0..*streams).map(|_| cuda.get(|cuda, to| cuda.cuStreamCreate(to, 1))).collect();
            say("ready");
            loop {
                for stream in &streams {
                    launch(*width, *stream);
                }
            }
        }
        // The same in the default stream.
        ("default", [width]) => {
            say("ready");
            loop {
                launch(*width, 0);
            }
        }
        _ => panic!("{words:?}"),
    }
}

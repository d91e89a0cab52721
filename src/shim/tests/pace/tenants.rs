//! What tenants do with their card.

use std::ffi::c_uint;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use driver_api::sys::{CUevent, CUfunction, CUstream};
use driver_api::{Cuda, DEFAULT_STREAM, DRIVER, NOT_READY, SUCCESS};

use crate::container::{listen, say, words};

/// How many exchanges a rank launches before it asks how long the first of them took.
const EXCHANGES: u64 = 64;

/// A program with card 0 and a kernel that takes time.
struct Program {
    cuda: Cuda,
    busy: CUfunction,
}

/// `<verb> <number> …`
#[test]
#[ignore = "a process of other tests"]
fn tenant() {
    let words = words();
    let Some((verb, arguments)) = words.split_first() else { return };
    let numbers: Vec<c_uint> = arguments.iter().map(|word| word.parse().expect("a number")).collect();
    let cuda = Cuda::start(DRIVER);
    let program = Program { busy: cuda.function(c"busy_ns"), cuda };
    match (verb.as_str(), &*numbers) {
        ("busy", [width, streams]) => program.busy(*width, *streams),
        ("contexts", [width, contexts]) => program.contexts(*width, *contexts),
        ("default", [width]) => program.default(*width),
        ("own-default", [width]) => program.own_default(*width),
        ("graphs", [width, kernels]) => program.graphs(*width, *kernels),
        ("steps", [width, kernels]) => program.steps(*width, *kernels),
        ("paused", [width, pause]) => program.paused(*width, *pause),
        ("fills", [bytes]) => program.fills(*bytes),
        ("copies", [bytes]) => program.copies(*bytes),
        ("gaps", [width, gap]) => program.gaps(*width, *gap),
        ("bursts", [width, kernels]) => program.bursts(*width, *kernels),
        ("mixed", [width, kernels]) => program.mixed(*width, *kernels),
        ("pretends", [gap]) => program.pretends(*gap),
        ("called", [width]) => program.called(*width),
        ("ranks", [ranks, width]) => program.ranks(*ranks, *width),
        ("rank", [rank, ranks, width]) => program.rank((*rank, *ranks), *width),
        ("once", [width, kernels]) => program.once(*width, *kernels),
        ("waits", [count]) => program.waits(*count),
        ("captures", [count]) => program.captures(*count),
        ("ends", [count]) => program.ends(*count),
        ("fails", []) => program.fails(),
        ("elsewhere", []) => program.destroys_elsewhere(),
        _ => panic!("{words:?}"),
    }
}

/// Sleeps no longer than until then. A sleep takes some 50 to 110 µs more than it says, by the machine.
fn sleep_until(then: Instant) {
    while let Some(rest) = then.checked_duration_since(Instant::now()) {
        thread::sleep(rest.saturating_sub(Duration::from_micros(80)));
    }
}

// === impl Program ===

impl Program {
    fn launch(&self, width: c_uint, stream: CUstream) {
        assert_eq!(self.cuda.launch(self.busy, width, stream), SUCCESS);
    }

    /// Kernels of so many nanoseconds, as fast as they are let in, in so many streams by turns.
    fn busy(&self, width: c_uint, streams: c_uint) {
        let streams: Vec<CUstream> = (0..streams).map(|_| self.cuda.stream()).collect();
        say("ready");
        loop {
            for stream in &streams {
                self.launch(width, *stream);
            }
        }
    }

    /// The same in a stream of each of so many contexts.
    fn contexts(&self, width: c_uint, contexts: c_uint) {
        let begin = |_| {
            let context = self.cuda.get(|cuda, to| cuda.cuCtxCreate_v2(to, 0, 0));
            (context, self.cuda.function(c"busy_ns"), self.cuda.stream())
        };
        let streams: Vec<_> = (0..contexts).map(begin).collect();
        say("ready");
        loop {
            for (context, busy, stream) in &streams {
                assert_eq!(self.cuda.cuCtxSetCurrent(*context), SUCCESS);
                assert_eq!(self.cuda.launch(*busy, width, *stream), SUCCESS);
            }
        }
    }

    /// The same in the default stream.
    fn default(&self, width: c_uint) {
        say("ready");
        loop {
            self.launch(width, DEFAULT_STREAM);
        }
    }

    /// The same in the thread's own default stream.
    fn own_default(&self, width: c_uint) {
        say("ready");
        let none = ptr::null_mut();
        loop {
            let launched =
                self.cuda.cuLaunchKernel_ptsz(self.busy, width, 1, 1, 1, 1, 1, 0, DEFAULT_STREAM, none, none);
            assert_eq!(launched, SUCCESS);
        }
    }

    /// Graphs of so many kernels.
    fn graphs(&self, width: c_uint, kernels: c_uint) {
        let stream = self.cuda.stream();
        let exec = self.cuda.captured(stream, || (0..kernels).for_each(|_| self.launch(width, stream)));
        say("ready");
        loop {
            assert_eq!(self.cuda.cuGraphLaunch(exec, stream), SUCCESS);
        }
    }

    /// Steps of so many kernels, each waited for.
    fn steps(&self, width: c_uint, kernels: c_uint) {
        let stream = self.cuda.stream();
        say("ready");
        loop {
            (0..kernels).for_each(|_| self.launch(width, stream));
            assert_eq!(self.cuda.cuStreamSynchronize(stream), SUCCESS);
        }
    }

    /// A kernel each so many milliseconds, and nobody waits for it.
    fn paused(&self, width: c_uint, pause: c_uint) {
        let stream = self.cuda.stream();
        say("ready");
        loop {
            self.launch(width, stream);
            thread::sleep(Duration::from_millis(pause.into()));
        }
    }

    /// Memsets of so many bytes, with one kernel between some of them.
    fn fills(&self, bytes: c_uint) {
        let (memory, stream) = (self.cuda.allocate(bytes.into()), self.cuda.stream());
        say("ready");
        loop {
            (0..10).for_each(|_| {
                assert_eq!(self.cuda.cuMemsetD32Async(memory, 7, bytes as usize / 4, stream), SUCCESS);
            });
            self.launch(1_000, stream);
        }
    }

    /// Copies of so many bytes within the card, of both functions for that.
    fn copies(&self, bytes: c_uint) {
        let (one, other) = (self.cuda.allocate(bytes.into()), self.cuda.allocate(bytes.into()));
        let stream = self.cuda.stream();
        say("ready");
        loop {
            assert_eq!(self.cuda.cuMemcpyDtoDAsync_v2(one, other, bytes as usize, stream), SUCCESS);
            assert_eq!(self.cuda.cuMemcpyAsync(other, one, bytes as usize, stream), SUCCESS);
        }
    }

    /// A kernel each so many nanoseconds longer than it takes: the processor can't launch them faster. Nobody waits for them.
    fn gaps(&self, width: c_uint, gap: c_uint) {
        let stream = self.cuda.stream();
        say("ready");
        loop {
            self.launch(width, stream);
            sleep_until(Instant::now() + Duration::from_nanos((width + gap).into()));
        }
    }

    /// Steps of so many kernels, each waited for, and twenty milliseconds without work.
    fn bursts(&self, width: c_uint, kernels: c_uint) {
        let stream = self.cuda.stream();
        say("ready");
        loop {
            (0..kernels).for_each(|_| self.launch(width, stream));
            assert_eq!(self.cuda.cuStreamSynchronize(stream), SUCCESS);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A kernel of so many nanoseconds behind so many short ones of the same function.
    fn mixed(&self, width: c_uint, kernels: c_uint) {
        let stream = self.cuda.stream();
        say("ready");
        loop {
            (0..kernels).for_each(|_| self.launch(5_000, stream));
            self.launch(width, stream);
            assert_eq!(self.cuda.cuStreamSynchronize(stream), SUCCESS);
        }
    }

    /// Has work without gaps for half a millisecond, then two kernels so far apart as if it had little.
    fn pretends(&self, gap: c_uint) {
        let stream = self.cuda.stream();
        say("ready");
        loop {
            for _ in 0..2 {
                self.launch(10_000, stream);
                sleep_until(Instant::now() + Duration::from_nanos(gap.into()));
            }
            (0..50).for_each(|_| self.launch(10_000, stream));
            sleep_until(Instant::now() + Duration::from_micros(400));
        }
    }

    /// Is busy for so many milliseconds whenever it is told so.
    fn called(&self, width: c_uint) {
        let stream = self.cuda.stream();
        say("ready");
        while let Ok(time) = listen().parse() {
            let end = Instant::now() + Duration::from_millis(time);
            while Instant::now() < end {
                self.launch(width, stream);
            }
            assert_eq!(self.cuda.cuCtxSynchronize(), SUCCESS);
            say("done");
        }
    }

    /// So many ranks in one process, a thread and a card each.
    fn ranks(&self, ranks: c_uint, width: c_uint) {
        self.work_as(0..ranks, ranks, width);
    }

    /// One of so many, whose others are processes of their own.
    fn rank(&self, (rank, ranks): (c_uint, c_uint), width: c_uint) {
        self.work_as(rank..rank + 1, ranks, width);
    }

    /// Works as some of the ranks. Says the longest exchange since it was asked last, in microseconds.
    fn work_as(&self, own: Range<c_uint>, ranks: c_uint, width: c_uint) {
        let (cuda, longest) = (&self.cuda, &AtomicU64::new(0));
        thread::scope(|scope| {
            for rank in own {
                scope.spawn(move || Self::work(cuda, (rank, ranks), width, longest));
            }
            say("ready");
            loop {
                listen();
                say(longest.swap(0, Ordering::Relaxed));
            }
        });
    }

    /// A kernel of so many nanoseconds, and one that exchanges data with the other ranks, without end.
    fn work(cuda: &Cuda, rank: (c_uint, c_uint), width: c_uint, longest: &AtomicU64) {
        cuda.enter(rank.0.cast_signed());
        let (busy, meet, stream) = (cuda.function(c"busy_ns"), cuda.function(c"meet_ns"), cuda.stream());
        let events: Vec<[CUevent; 2]> = (0..EXCHANGES).map(|_| [cuda.event(), cuda.event()]).collect();
        let mut held = vec![Duration::ZERO; events.len()];
        for (number, (place, [begin, end])) in (1..).zip(events.into_iter().enumerate().cycle()) {
            if number > EXCHANGES {
                assert_eq!(cuda.cuEventSynchronize(end), SUCCESS);
                // While its launch was held back it didn't wait for others.
                let took = cuda.elapsed(begin, end).saturating_sub(held[place]);
                longest.fetch_max(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
            assert_eq!(cuda.launch(busy, width, stream), SUCCESS);
            assert_eq!(cuda.cuEventRecord(begin, stream), SUCCESS);
            let asked = Instant::now();
            assert_eq!(cuda.launch_meet(meet, (1, number), rank, (width / 10).into(), stream), SUCCESS);
            held[place] = asked.elapsed();
            assert_eq!(cuda.cuEventRecord(end, stream), SUCCESS);
        }
    }

    /// Launches so many, and waits for none of them.
    fn once(&self, width: c_uint, kernels: c_uint) {
        let streams = [DEFAULT_STREAM, self.cuda.stream()];
        for stream in streams {
            (0..kernels).for_each(|_| self.launch(width, stream));
        }
        say("ready");
        listen();
    }

    /// Work of one card fails, of another is launched after that; nobody waits for either.
    fn fails(&self) {
        let first = self.cuda.enter(0);
        let (fails, stream) = (self.cuda.function(c"read_nowhere"), self.cuda.stream());
        self.cuda.enter(1);
        let (busy, other) = (self.cuda.function(c"busy_ns"), self.cuda.stream());
        assert_eq!(self.cuda.cuCtxSetCurrent(first), SUCCESS);
        assert_eq!(self.cuda.launch(fails, 1, stream), SUCCESS);
        while self.cuda.cuStreamQuery(stream) == NOT_READY {}
        self.cuda.enter(1);
        thread::sleep(Duration::from_millis(20));
        (0..3).for_each(|_| assert_eq!(self.cuda.launch(busy, 1_000_000, other), SUCCESS));
        say("ready");
        listen();
    }

    /// A stream with work is destroyed while another card's context is current.
    fn destroys_elsewhere(&self) {
        let stream = self.cuda.stream();
        (0..4).for_each(|_| self.launch(1_000_000, stream));
        self.cuda.enter(1);
        assert_eq!(self.cuda.cuStreamDestroy_v2(stream), SUCCESS);
        say("ready");
        listen();
    }

    /// Waits for an event behind kernels of any length, and says so each time.
    fn waits(&self, count: c_uint) {
        let stream = self.cuda.stream();
        let event = self.cuda.event();
        say("ready");
        for number in 0..count {
            self.launch(1_000_000 + number * 7 % 5 * 1_000_000, stream);
            assert_eq!(self.cuda.cuEventRecord(event, stream), SUCCESS);
            assert_eq!(self.cuda.cuEventSynchronize(event), SUCCESS);
            say("done");
            listen();
        }
    }

    /// Captures in the strictest mode while another stream works, which the library watches meanwhile.
    fn captures(&self, count: c_uint) {
        let (stream, other) = (self.cuda.stream(), self.cuda.stream());
        for _ in 0..count {
            (0..5).for_each(|_| self.launch(300_000, other));
            let exec = self.cuda.captured(stream, || {
                for _ in 0..10 {
                    self.launch(10_000, stream);
                    thread::sleep(Duration::from_micros(300));
                }
            });
            assert_eq!(self.cuda.cuGraphLaunch(exec, stream), SUCCESS);
            // The next capture begins while this is in flight, behind its last mark.
            self.launch(200_000, stream);
        }
        assert_eq!(self.cuda.cuCtxSynchronize(), SUCCESS);
        say("ready");
        listen();
    }

    /// Streams and contexts end while they have work, and others begin where they were.
    fn ends(&self, count: c_uint) {
        for _ in 0..count {
            let context = self.cuda.get(|cuda, to| cuda.cuCtxCreate_v2(to, 0, 0));
            let function = self.cuda.function(c"busy_ns");
            let streams: Vec<CUstream> = (0..3).map(|_| self.cuda.stream()).collect();
            for stream in &streams {
                (0..3).for_each(|_| assert_eq!(self.cuda.launch(function, 200_000, *stream), SUCCESS));
            }
            assert_eq!(self.cuda.cuStreamDestroy_v2(streams[0]), SUCCESS);
            thread::sleep(Duration::from_micros(400));
            assert_eq!(self.cuda.cuCtxDestroy_v2(context), SUCCESS);
        }
        assert_eq!(self.cuda.cuDevicePrimaryCtxReset_v2(0), SUCCESS);
        say("ready");
        listen();
    }
}

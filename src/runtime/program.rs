//! What every long-running program does around its work.
//!
//! ```text
//! main ──▶ launch: command line, configuration, log ──▶ Program::run ──▶ the work, with a Context ──▶ end
//!                                                                                                     │
//!                        the program again, with its new configuration, or the process's exit code ◀──┘
//! ```

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use anyhow::Context as _;
use axum::Router;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::debug::Debug;
use crate::logging::LogControl;
use crate::settings::Stop;
use crate::{Next, Signals, Tasks, pages};

/// Longest wait at the end for threads that work for a task. One that hangs in a driver call can't be joined.
const THREADS_END: Duration = Duration::from_millis(100);

/// Threads that run a program's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// The main thread alone: further ones would cost memory and a wake-up a call.
    One,
    /// One for each core.
    EachCore,
}

/// A program that has begun and has yet to run.
#[derive(Debug)]
pub struct Program {
    runtime: Runtime,
}

/// What a program's work is given.
#[derive(Debug)]
pub struct Context {
    /// SIGTERM and SIGINT, which don't end the process by themselves.
    pub signals: Signals,
    /// The program's tasks.
    pub tasks: Tasks,
    /// Cancelled when the tasks are to end.
    pub stop: CancellationToken,
    log: LogControl,
}

/// The whole program: `launch` reads its configuration and runs it. The exit code is 0 after SIGTERM, 1 after a failure, 64 for an
/// invalid configuration.
pub fn main(workers: Workers, launch: impl FnOnce(Program) -> Result<ExitCode, Stop>) -> ExitCode {
    let runtime = match workers {
        Workers::One => Builder::new_current_thread().enable_all().build(),
        Workers::EachCore => Runtime::new(),
    };
    match runtime {
        Ok(runtime) => launch(Program { runtime }).unwrap_or_else(|stop| ExitCode::from(stop.report())),
        Err(error) => {
            eprintln!("error: starting the runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Executes the program again, with the same flags and environment in the same process: neither container nor unit restarts, so
/// no back-off delays it. Returns only if that fails.
fn restart() -> io::Error {
    let mut args = env::args_os();
    let mut program = Command::new("/proc/self/exe");
    args.next().map(|name| program.arg0(name));
    program.args(args).exec()
}

// === impl Program ===

impl Program {
    /// Waits for what comes before the work, or in place of it. Signals end the process meanwhile.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Does the work, ends, and says how that went.
    pub fn run<F>(self, log: LogControl, work: impl FnOnce(Context) -> F) -> ExitCode
    where
        F: Future<Output = anyhow::Result<Next>>,
    {
        let result = self.runtime.block_on(async { work(Context::new(log)?).await });
        self.runtime.shutdown_timeout(THREADS_END);
        let result = result.and_then(|next| match next {
            Next::Exit => Ok(()),
            Next::Start => Err(restart()).context("restarting with the new configuration"),
        });
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                error!("{error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

// === impl Context ===

impl Context {
    fn new(log: LogControl) -> anyhow::Result<Self> {
        let signals = Signals::new().context("listening for signals")?;
        Ok(Self { signals, tasks: Tasks::default(), stop: CancellationToken::new(), log })
    }

    /// Serves `adminAddress`: the program's own routes and the pages of `debug`, among which `state` is what the program
    /// decides by; it may take its time.
    pub fn serve_admin(
        &mut self,
        listener: TcpListener,
        routes: Router,
        state: impl Fn() -> Value + Send + Sync + 'static,
    ) {
        let log = self.log.clone();
        let debug = Debug { log, tasks: self.tasks.list(), state: Arc::new(state), stop: self.stop.clone() };
        let serve = pages::serve("adminAddress", listener, routes.merge(debug.router()), self.stop.clone());
        self.tasks.spawn("admin", serve);
    }

    /// Runs until a signal or until `reconfigured`, then tells others by `retire`, and the tasks by `stop`, that the program ends,
    /// and waits for the tasks; or until one of them fails. A second signal aborts; the first may come while the program is
    /// about to restart.
    pub async fn until_over(
        self,
        reconfigured: impl Future<Output = ()>,
        retire: impl Future<Output = ()>,
        patience: Duration,
    ) -> anyhow::Result<Next> {
        let Self { signals, tasks, stop, .. } = self;
        let end = async {
            retire.await;
            stop.cancel();
        };
        tasks.until_over(signals, reconfigured, end, patience).await
    }
}

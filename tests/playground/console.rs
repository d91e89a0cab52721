//! The lines that are printed as things happen.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use divvy_api::{CardId, GpuRequest, Share};

use crate::text::{clip, wrap};

/// Longest texts about a pod; the report has them whole.
const LINES: usize = 2;

/// Prints lines, with the time since the start in front.
pub struct Console {
    out: Mutex<Box<dyn Write + Send>>,
    start: Instant,
    /// Width of the column of nodes.
    pub width: usize,
    /// Whether colours can be seen.
    pub colours: bool,
}

// === impl Console ===

impl Console {
    /// Prints to stdout, in colours where they can be seen.
    pub fn stdout() -> Self {
        let colours = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { colours, ..Self::new(io::stdout()) }
    }

    /// Prints to `out` in plain letters.
    pub fn new(out: impl Write + Send + 'static) -> Self {
        Self { out: Mutex::new(Box::new(out)), start: Instant::now(), width: 0, colours: false }
    }

    /// Seconds since the start.
    pub fn elapsed(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Something that happened to a node.
    pub fn node(&self, node: &str, what: &str) {
        self.line(&format!("{node:<width$}  {what}", width = self.width));
    }

    /// Something that happened to a pod.
    pub fn pod(&self, node: &str, pod: &str, container: &str, what: &str) {
        let line = format!("{:>6.1}s  {node:<width$}  {pod:<24} {container:<8}  ", self.elapsed(), width = self.width);
        let indent = line.chars().count();
        self.plain(&wrap(&(line + what), indent));
    }

    /// What somebody says of a pod; its beginning, if it is long.
    pub fn said(&self, node: &str, pod: &str, text: &str) {
        let line = format!("{:>6.1}s  {node:<width$}  {pod:<24} {text}", self.elapsed(), width = self.width);
        let indent = " 123.4s  ".len() + self.width + 2;
        self.plain(&clip(wrap(&line, indent), LINES));
    }

    /// A line of its own. A reader that has gone away is no reason to stop.
    pub fn plain(&self, text: &str) {
        drop(writeln!(self.out.lock().unwrap_or_else(PoisonError::into_inner), "{text}"));
    }

    fn line(&self, text: &str) {
        self.plain(&format!("{:>6.1}s  {text}", self.elapsed()));
    }
}

/// `GPU-1f3a22c0…` and the part of it that a container has.
pub fn share(cards: &[(CardId, Share)], request: &GpuRequest) -> String {
    let names: Vec<String> = cards.iter().map(|(card, _)| short(card.as_str())).collect();
    let part = match cards.first() {
        _ if *request == GpuRequest::whole(request.cards) => "whole".to_owned(),
        Some((_, share)) => share.to_string(),
        None => "nothing".to_owned(),
    };
    format!("{}  {part}", names.join(" "))
}

/// As much of a UUID as people compare.
pub fn short(card: &str) -> String {
    match card.char_indices().nth("GPU-1f3a".len()) {
        Some((end, _)) => format!("{}…", &card[..end]),
        None => card.to_owned(),
    }
}

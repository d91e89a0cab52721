//! Nodes and pods from CSV files in the form of the openb traces (`alibaba/clusterdata`, cluster-trace-gpu-v2023).
//!
//! A file is read to its end or not at all.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use csv::StringRecord;

/// Columns of a node file.
const NODE_COLUMNS: &[&str] = &["sn", "cpu_milli", "memory_mib", "gpu", "model"];
/// Columns of a pod file; those after the first five may be missing together.
const POD_COLUMNS: &[&str] = &[
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    MODELS,
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
];
/// How many of them a short pod file has.
const SHORT_POD: usize = 5;
/// One of those that a short file lacks.
const MODELS: &str = "gpu_spec";
/// A column that may come last in a pod file; the traces don't have it.
const CARD_MEMORY: &str = "gpu_memory_milli";
/// Thousandths of a CPU core: more than any machine has.
const MOST_CPU: u32 = 100_000_000;
/// MiB: 1 PiB.
const MOST_MEMORY: u32 = 1 << 30;
/// Most cards of a machine, and of a pod.
pub const MOST_CARDS: u32 = 32;

/// A node of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceNode {
    /// `sn`.
    pub name: String,
    /// `cpu_milli`: thousandths of a CPU core.
    pub cpu: u32,
    /// `memory_mib`: host memory in MiB.
    pub memory: u32,
    /// `gpu`: number of cards, 0 to 32.
    pub cards: u32,
    /// `model` of all of them; empty if there are none.
    pub model: String,
}

/// A pod of a trace. Its phase and times are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracePod {
    /// `name`.
    pub name: String,
    /// `cpu_milli`: thousandths of a CPU core.
    pub cpu: u32,
    /// `memory_mib`: host memory in MiB.
    pub memory: u32,
    /// `num_gpu`, 0 to 32.
    pub cards: u32,
    /// `gpu_milli`: thousandths of each card; below 1000 only for one card.
    pub milli: u32,
    /// `gpu_memory_milli`: thousandths of each card's memory; `None`: as many as of the card.
    pub card_memory: Option<u32>,
    /// `gpu_spec`: models that will do; empty: any.
    pub models: Vec<String>,
}

/// A file that can't be used. Lines and columns count from 1; a quoted field's quotes don't count.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// No such file, not UTF-8 and the like.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the reader says.
        source: csv::Error,
    },
    /// A field that is not what its column says.
    #[error("{}:{line}:{column}: {problem}", file.display())]
    Field {
        /// The file.
        file: PathBuf,
        /// Number of the line.
        line: u64,
        /// Character in the line.
        column: usize,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// A header and nothing below.
    #[error("{}: no rows: expected at least one below the header", .0.display())]
    Empty(PathBuf),
}

/// The nodes of a file.
pub fn nodes(file: &Path) -> Result<Vec<TraceNode>, TraceError> {
    rows(file, NODE_COLUMNS, NODE_COLUMNS.len(), None, |row| {
        let name = row.text(0)?;
        let cards = row.number(3, 0, MOST_CARDS)?;
        let model = row.field(4).to_owned();
        if cards > 0 && model.is_empty() {
            return Err((4, format!("model is empty, but the node has {cards} GPUs")));
        }
        Ok(TraceNode { name, cpu: row.number(1, 1, MOST_CPU)?, memory: row.number(2, 1, MOST_MEMORY)?, cards, model })
    })
}

/// The pods of a file. `models` are those that there are, if that is known: a pod that asks for another is a mistake.
pub fn pods(file: &Path, models: Option<&BTreeSet<&str>>) -> Result<Vec<TracePod>, TraceError> {
    rows(file, POD_COLUMNS, SHORT_POD, Some(CARD_MEMORY), |row| {
        let cards = row.number(3, 0, MOST_CARDS)?;
        let milli = row.number(4, 0, 1000)?;
        match (cards, milli) {
            (0, 1..) => return Err((4, format!("gpu_milli is {milli}, but num_gpu is 0: expected 0"))),
            (1.., 0) => return Err((4, "gpu_milli is 0, but num_gpu isn't: expected 1 to 1000".to_owned())),
            (2.., ..1000) => {
                return Err((4, format!("gpu_milli is {milli}: expected 1000 where num_gpu is {cards}")));
            }
            _ => {}
        }
        let name = row.text(0)?;
        let cpu = row.number(1, 0, MOST_CPU)?;
        let memory = row.number(2, 0, MOST_MEMORY)?;
        let card_memory = row.card_memory(milli)?;
        let models = row.models(row.position(MODELS), models)?;
        Ok(TracePod { name, cpu, memory, cards, milli, card_memory, models })
    })
}

/// A row below its header.
struct Row<'a> {
    header: &'a StringRecord,
    record: &'a StringRecord,
}
/// Why a field of a row is refused: column by position, then the problem.
type Refused = (usize, String);

fn rows<T>(
    file: &Path,
    columns: &[&str],
    shortest: usize,
    last: Option<&str>,
    read: impl Fn(&Row<'_>) -> Result<T, Refused>,
) -> Result<Vec<T>, TraceError> {
    let unreadable = |source| TraceError::Read { file: file.to_owned(), source };
    let field = |record: &StringRecord, (column, problem): Refused| {
        let line = record.position().map_or(1, csv::Position::line);
        TraceError::Field { file: file.to_owned(), line, column: character(record, column), problem }
    };
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_path(file).map_err(unreadable)?;
    let mut records = reader.records();
    let header = records.next().ok_or_else(|| TraceError::Empty(file.to_owned()))?.map_err(unreadable)?;
    check_header(&header, columns, shortest, last).map_err(|refused| field(&header, refused))?;
    let mut rows = Vec::new();
    for record in records {
        let record = record.map_err(unreadable)?;
        let row = check_width(&record, header.len()).and_then(|()| read(&Row { header: &header, record: &record }));
        rows.push(row.map_err(|refused| field(&record, refused))?);
    }
    if rows.is_empty() { Err(TraceError::Empty(file.to_owned())) } else { Ok(rows) }
}

/// The first `shortest` of the columns or all of them, and then maybe `last`.
fn check_header(header: &StringRecord, columns: &[&str], shortest: usize, last: Option<&str>) -> Result<(), Refused> {
    let width = header.len() - usize::from(last.is_some() && header.iter().next_back() == last);
    if let Some((at, (found, expected))) =
        header.iter().take(width).zip(columns).enumerate().find(|(_, (found, expected))| found != *expected)
    {
        return Err((at, format!("column \"{found}\": expected \"{expected}\"")));
    }
    if width == shortest || width == columns.len() {
        return Ok(());
    }
    let expected = if shortest == columns.len() { String::new() } else { format!("{shortest} or ") };
    let last = last.map_or_else(String::new, |last| format!(", and then maybe {last}"));
    let problem = format!("{width} columns: expected {expected}{}: {}{last}", columns.len(), columns.join(","));
    Err((width.min(columns.len()), problem))
}

fn check_width(record: &StringRecord, width: usize) -> Result<(), Refused> {
    let found = record.len();
    if found == width { Ok(()) } else { Err((found.min(width), format!("{found} fields: expected {width}"))) }
}

/// Where a field begins in its line, from 1; behind the last field for one that is missing.
fn character(record: &StringRecord, field: usize) -> usize {
    record.iter().take(field).map(|earlier| earlier.chars().count() + 1).sum::<usize>() + 1
}

// === impl Row ===

impl Row<'_> {
    /// Empty if there is none.
    fn field(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or_default()
    }

    /// Position of a column that not all files have; behind the last in a file without it.
    fn position(&self, column: &str) -> usize {
        self.header.iter().position(|found| found == column).unwrap_or(self.header.len())
    }

    fn text(&self, column: usize) -> Result<String, Refused> {
        let text = self.field(column);
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let framed = !text.starts_with('-') && !text.ends_with('-');
        if (1..=63).contains(&text.len()) && framed && text.chars().all(legal) {
            return Ok(text.to_owned());
        }
        Err((column, format!("\"{text}\" is not a name: expected 1 to 63 lower-case letters, digits and '-'")))
    }

    /// `None` if the row doesn't say. Who has all of a card's compute has the card alone, as everywhere in Divvy.
    fn card_memory(&self, milli: u32) -> Result<Option<u32>, Refused> {
        let column = self.position(CARD_MEMORY);
        if self.field(column).is_empty() {
            return Ok(None);
        }
        let memory = self.number(column, milli.min(1), 1000)?;
        match milli {
            0 | 1000 if memory != milli => {
                Err((column, format!("gpu_memory_milli is {memory}, but gpu_milli is {milli}: expected {milli}")))
            }
            _ => Ok(Some(memory)),
        }
    }

    fn models(&self, column: usize, known: Option<&BTreeSet<&str>>) -> Result<Vec<String>, Refused> {
        let models = self.field(column).split('|').filter(|model| !model.is_empty());
        models.map(|model| self::model(model, known).map_err(|problem| (column, problem))).collect()
    }

    fn number(&self, column: usize, low: u32, high: u32) -> Result<u32, Refused> {
        let text = self.field(column);
        let number = u32::from_str(text).ok().filter(|number| (low..=high).contains(number));
        number.ok_or_else(|| (column, format!("\"{text}\" is not a whole number from {low} to {high}")))
    }
}

/// The model, if it is among the known ones.
fn model(model: &str, known: Option<&BTreeSet<&str>>) -> Result<String, String> {
    match known.filter(|known| !known.contains(model)) {
        Some(known) => {
            let known = known.iter().copied().collect::<Vec<_>>().join(", ");
            Err(format!("no node has model \"{model}\": expected some of {known}"))
        }
        None => Ok(model.to_owned()),
    }
}

#[cfg(test)]
mod tests;

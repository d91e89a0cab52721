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
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
];
/// How many of them a short pod file has.
const SHORT_POD: usize = 5;
/// Thousandths of a CPU core: more than any machine has.
const MOST_CPU: u32 = 100_000_000;
/// MiB: 1 PiB.
const MOST_MEMORY: u32 = 1 << 30;
/// Cards of a machine, or of a pod.
pub(crate) const MOST_CARDS: u32 = 32;

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
        /// Its line.
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
    rows(file, NODE_COLUMNS, NODE_COLUMNS.len(), |row| {
        let (name, cards) = (row.text(0)?, row.number(3, 0, MOST_CARDS)?);
        let model = row.0.get(4).unwrap_or_default().to_owned();
        if cards > 0 && model.is_empty() {
            return Err((4, format!("model is empty, but the node has {cards} cards")));
        }
        Ok(TraceNode { name, cpu: row.number(1, 1, MOST_CPU)?, memory: row.number(2, 1, MOST_MEMORY)?, cards, model })
    })
}

/// The pods of a file. `models` are those that there are, if that is known: a pod that asks for another is a mistake.
pub fn pods(file: &Path, models: Option<&BTreeSet<&str>>) -> Result<Vec<TracePod>, TraceError> {
    rows(file, POD_COLUMNS, SHORT_POD, |row| {
        let (cards, milli) = (row.number(3, 0, MOST_CARDS)?, row.number(4, 0, 1000)?);
        match (cards, milli) {
            (0, 1..) => return Err((4, format!("gpu_milli is {milli}, but num_gpu is 0: expected 0"))),
            (1.., 0) => return Err((4, "gpu_milli is 0, but num_gpu isn't: expected 1 to 1000".to_owned())),
            (2.., ..1000) => {
                return Err((4, format!("gpu_milli is {milli}: expected 1000 where num_gpu is {cards}")));
            }
            _ => {}
        }
        let (name, cpu, memory) = (row.text(0)?, row.number(1, 0, MOST_CPU)?, row.number(2, 0, MOST_MEMORY)?);
        Ok(TracePod { name, cpu, memory, cards, milli, models: row.models(5, models)? })
    })
}

/// A row and why a field of it is refused: column by position, then the problem.
struct Row<'a>(&'a StringRecord);
type Refused = (usize, String);

fn rows<T>(
    file: &Path,
    columns: &[&str],
    shortest: usize,
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
    check_header(&header, columns, shortest).map_err(|refused| field(&header, refused))?;
    let mut rows = Vec::new();
    for record in records {
        let record = record.map_err(unreadable)?;
        let row = check_width(&record, header.len()).and_then(|()| read(&Row(&record)));
        rows.push(row.map_err(|refused| field(&record, refused))?);
    }
    if rows.is_empty() { Err(TraceError::Empty(file.to_owned())) } else { Ok(rows) }
}

fn check_header(header: &StringRecord, columns: &[&str], shortest: usize) -> Result<(), Refused> {
    if let Some((at, (found, expected))) =
        header.iter().zip(columns).enumerate().find(|(_, (found, expected))| found != *expected)
    {
        return Err((at, format!("column \"{found}\": expected \"{expected}\"")));
    }
    if header.len() == shortest || header.len() == columns.len() {
        return Ok(());
    }
    let expected = if shortest == columns.len() { String::new() } else { format!("{shortest} or ") };
    let problem = format!("{} columns: expected {expected}{}: {}", header.len(), columns.len(), columns.join(","));
    Err((header.len().min(columns.len()), problem))
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
    fn text(&self, column: usize) -> Result<String, Refused> {
        let text = self.0.get(column).unwrap_or_default();
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let framed = !text.starts_with('-') && !text.ends_with('-');
        if (1..=63).contains(&text.len()) && framed && text.chars().all(legal) {
            return Ok(text.to_owned());
        }
        Err((column, format!("\"{text}\" is not a name: expected 1 to 63 lower-case letters, digits and '-'")))
    }

    fn models(&self, column: usize, known: Option<&BTreeSet<&str>>) -> Result<Vec<String>, Refused> {
        let models = self.0.get(column).unwrap_or_default().split('|').filter(|model| !model.is_empty());
        let model = |model: &str| match known.filter(|known| !known.contains(model)) {
            Some(known) => {
                let known = known.iter().copied().collect::<Vec<_>>().join(", ");
                Err((column, format!("no node has model \"{model}\": expected some of {known}")))
            }
            None => Ok(model.to_owned()),
        };
        models.map(model).collect()
    }

    fn number(&self, column: usize, low: u32, high: u32) -> Result<u32, Refused> {
        let text = self.0.get(column).unwrap_or_default();
        let number = u32::from_str(text).ok().filter(|number| (low..=high).contains(number));
        number.ok_or_else(|| (column, format!("\"{text}\" is not a whole number from {low} to {high}")))
    }
}

#[cfg(test)]
mod tests;

//! The archive: a gzipped tar file that gets its name when it is complete, with a list of what is in it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};
use tempfile::NamedTempFile;

use super::redact::redacted;

/// An archive that is being written.
pub(super) struct Archive {
    tar: Builder<GzEncoder<NamedTempFile>>,
    /// Folder that all of it is in.
    folder: String,
    /// Seconds since 1970.
    time: u64,
    taken: BTreeSet<String>,
    contained: Vec<String>,
    missing: Vec<String>,
}

/// A part of the archive.
#[derive(Debug)]
pub(super) struct Part {
    /// Folders and name; any text.
    pub(super) path: Vec<String>,
    /// The text, or why there is none.
    pub(super) content: Result<Vec<u8>, String>,
    /// What is to be known about it.
    pub(super) note: Option<String>,
}

/// Longest name of a file or folder.
const LONGEST: usize = 128;

// === impl Part ===

impl Part {
    pub(super) fn new(path: &[&str], content: Result<Vec<u8>, String>) -> Self {
        Self { path: path.iter().map(|name| (*name).to_owned()).collect(), content, note: None }
    }

    /// The path in the archive.
    fn name(&self) -> String {
        self.path.iter().map(|name| file_name(name)).collect::<Vec<_>>().join("/")
    }
}

/// A name that is one everywhere: names of objects come from the API server, and a page may be anybody's.
fn file_name(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = text.chars().take(LONGEST).map(|c| if is_plain(c) { c } else { '_' }).collect();
    if name.chars().all(|c| c == '.') { "_".repeat(name.len().max(1)) } else { name }
}

// === impl Archive ===

impl Archive {
    /// An archive that will be at this path.
    pub(super) fn new(path: &Path, folder: &str, time: u64) -> io::Result<Self> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().prefix(".divvy-debug-").tempfile_in(directory)?;
        let tar = Builder::new(GzEncoder::new(file, Compression::default()));
        let (taken, contained, missing) = Default::default();
        Ok(Self { tar, folder: folder.to_owned(), time, taken, contained, missing })
    }

    /// Adds a part, or notes that it is missing.
    pub(super) fn add(&mut self, part: &Part) -> io::Result<()> {
        let mut name = part.name();
        let content = match &part.content {
            Ok(content) => content,
            Err(why) => {
                let (why, _) = redacted(why);
                self.missing.push(format!("{name}: {}", why.replace('\n', " ")));
                return Ok(());
            }
        };
        while !self.taken.insert(name.clone()) {
            name.push('_');
        }
        let text = String::from_utf8_lossy(content);
        let (text, secrets) = redacted(&text);
        self.append(&name, text.as_bytes())?;
        let mut line = format!("{name}: {} bytes", text.len());
        if let Some(note) = &part.note {
            let _fits = write!(line, ", {note}");
        }
        if secrets > 0 {
            let _fits = write!(line, ", {secrets} times (left out) in place of what looks like a secret");
        }
        self.contained.push(line);
        Ok(())
    }

    /// Whether everything that was asked for is there.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// What is missing, a line each.
    pub(super) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Adds the list of contents, which begins with `head`, and gives the file its name. Returns its length.
    pub(super) fn finish(mut self, path: &PathBuf, replace: bool, head: &str) -> io::Result<u64> {
        let lines = |lines: &[String]| if lines.is_empty() { "nothing".to_owned() } else { lines.join("\n  ") };
        let contained = lines(&self.contained);
        let missing = lines(&self.missing);
        let contents = format!("{head}\nIn this archive:\n  {contained}\n\nMissing, and why:\n  {missing}\n");
        self.append("contents.txt", contents.as_bytes())?;
        let mut file = self.tar.into_inner()?.finish()?;
        file.flush()?;
        let length = file.as_file().metadata()?.len();
        if replace {
            file.persist(path)?
        } else {
            file.persist_noclobber(path)?
        };
        Ok(length)
    }

    fn append(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        self.tar.append_data(&mut header, format!("{}/{name}", self.folder), content)
    }
}

/// Whether something has this name already.
pub(super) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_folder() {
        for (path, expected) in [
            (&["..", "..", "etc/passwd"][..], "__/__/etc_passwd"),
            (&["/", "", "a b\n.json"], "_/_/a_b_.json"),
            (&["a.b-c_d", "..."], "a.b-c_d/___"),
            (&[&"x".repeat(1000)], &"x".repeat(LONGEST)),
        ] {
            assert_eq!(Part::new(path, Ok(Vec::new())).name(), expected);
        }
    }
}

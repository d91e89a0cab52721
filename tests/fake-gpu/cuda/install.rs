use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Copies the library into `directory` as `libcuda.so.1`, without the functions that it `lacks`, and returns its path. A
/// program finds it there through `LD_LIBRARY_PATH`.
///
/// A copy, because the loader takes a link to a library it has loaded for that library.
pub fn install(library: &Path, directory: &Path, lacks: &BTreeSet<String>) -> io::Result<PathBuf> {
    let mut bytes = fs::read(library)?;
    for name in lacks {
        hide(&mut bytes, name);
    }
    let copy = directory.join("libcuda.so.1");
    fs::write(&copy, bytes)?;
    Ok(copy)
}

/// Spoils a name wherever it stands as a whole between two zero bytes, as it does in the table that `dlsym` compares with.
fn hide(bytes: &mut [u8], name: &str) {
    let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
    let found: Vec<usize> = (0..bytes.len().saturating_sub(wanted.len()))
        .filter(|start| bytes[*start] == 0 && bytes[*start..].starts_with(&wanted))
        .collect();
    for start in found {
        bytes[start + 1] = b'~';
    }
}

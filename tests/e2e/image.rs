//! Container images without a registry: archives as `docker save` writes them, of one layer with a static busybox, and what
//! else is wanted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;
use tar::{Builder, EntryType, Header};

/// What containers run; a tag other than `latest`, or the kubelet would pull it.
pub const WORK: &str = "test.local/work:1";
/// The same, with a program that uses cards.
pub const GUEST: &str = "test.local/guest:1";
/// What holds a pod's sandbox open.
pub const SANDBOX: &str = "test.local/sandbox:1";

/// A file of an image: its path there, without a leading slash, and where to take it from.
pub type FileOfImage = (String, PathBuf);

/// An image of this name, whose containers run `entrypoint` unless told otherwise.
pub fn archive(busybox: &Path, name: &str, entrypoint: &[&str], files: &[FileOfImage]) -> anyhow::Result<Vec<u8>> {
    let layer = layer(busybox, files)?;
    let mut sum = "sha256:".to_owned();
    for byte in digest(&SHA256, &layer).as_ref() {
        write!(sum, "{byte:02x}")?;
    }
    let config = json!({
        "architecture": match std::env::consts::ARCH { "aarch64" => "arm64", _ => "amd64" },
        "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [sum]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    let mut archive = Builder::new(Vec::new());
    add(&mut archive, "manifest.json", 0o644, manifest.to_string().as_bytes())?;
    add(&mut archive, "config.json", 0o644, config.to_string().as_bytes())?;
    add(&mut archive, "layer.tar", 0o644, &layer)?;
    Ok(archive.into_inner()?)
}

fn layer(busybox: &Path, files: &[FileOfImage]) -> anyhow::Result<Vec<u8>> {
    let mut layer = Builder::new(Vec::new());
    for directory in ["bin/", "etc/", "tmp/"] {
        let mut header = header(0o755, 0);
        header.set_entry_type(EntryType::Directory);
        layer.append_data(&mut header, directory, std::io::empty())?;
    }
    let busybox = [("bin/busybox".to_owned(), busybox.to_owned())];
    for (path, source) in busybox.iter().chain(files) {
        let content = std::fs::read(source).with_context(|| format!("reading {}", source.display()))?;
        add(&mut layer, path, 0o755, &content)?;
    }
    let mut link = header(0o777, 0);
    link.set_entry_type(EntryType::Symlink);
    layer.append_link(&mut link, "bin/sh", "busybox")?;
    Ok(layer.into_inner()?)
}

fn add(archive: &mut Builder<Vec<u8>>, path: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
    Ok(archive.append_data(&mut header(mode, content.len() as u64), path, content)?)
}

fn header(mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header
}

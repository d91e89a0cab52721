//! The workspace as Cargo and the file system have it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).unwrap()
}

/// A path as it is printed: relative to the repository.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// `cargo metadata` with all dependencies, for the processor and system this runs on.
pub(crate) fn metadata() -> &'static Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", &target])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    })
}

/// A crate of the workspace.
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    /// The names of the packages in `[dependencies]`, without those for tests and build scripts.
    pub(crate) dependencies: Vec<String>,
    /// The root files of its library and programs.
    pub(crate) roots: Vec<PathBuf>,
}

impl Crate {
    /// Whether users run it: everything that isn't below `tests`.
    pub(crate) fn is_product(&self) -> bool {
        !self.directory.starts_with(root().join("tests"))
    }
}

/// Every crate of the workspace.
pub(crate) fn crates() -> Vec<Crate> {
    let metadata = metadata();
    let members = metadata["workspace_members"].as_array().unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().filter(|package| members.contains(&package["id"])).map(read).collect()
}

fn read(package: &Value) -> Crate {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let normal = |dependency: &&Value| dependency["kind"].is_null();
    let product = |target: &&Value| {
        let kinds = target["kind"].as_array().unwrap();
        kinds.iter().any(|kind| matches!(kind.as_str(), Some("lib" | "rlib" | "cdylib" | "bin")))
    };
    Crate {
        name: text(&package["name"]),
        directory: Path::new(&text(&package["manifest_path"])).parent().unwrap().to_owned(),
        dependencies: package["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter(normal)
            .map(|it| text(&it["name"]))
            .collect(),
        roots: package["targets"]
            .as_array()
            .unwrap()
            .iter()
            .filter(product)
            .map(|it| text(&it["src_path"]).into())
            .collect(),
    }
}

/// All files below a directory of the repository with this extension, build outputs left out, sorted.
pub(crate) fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
                pending.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|it| it == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

//! The programs that the cluster is made of, built as this program was.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use tokio::process::Command;

/// What the cluster runs.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// `divvy-node`.
    pub daemon: PathBuf,
    /// `divvy-webhook`.
    pub webhook: PathBuf,
    /// `libfake_nvml.so`.
    pub nvml: PathBuf,
    /// `kubectl-divvy`.
    pub plugin: PathBuf,
}

/// Where cargo put this program.
struct Target {
    /// `target/release` and the like.
    directory: PathBuf,
    /// `--profile`.
    profile: String,
    /// `--target-dir`.
    root: PathBuf,
}

// === impl Binaries ===

impl Binaries {
    /// Builds them, unless `as_they_are`, and finds them.
    ///
    /// Cargo knows no dependency on another package's program. This crate depends on the libraries of all of them, so
    /// that their features are those that this program was built with: what is left to build are the programs.
    pub async fn get(as_they_are: bool) -> anyhow::Result<Self> {
        let target = Target::of(&env::current_exe().context("finding this program")?)?;
        if !as_they_are {
            build(&target).await?;
        }
        let daemon = target.find(&["divvy-node"])?;
        let webhook = target.find(&["divvy-webhook"])?;
        let (nvml, plugin) =
            (target.find(&["libfake_nvml.so", "deps/libfake_nvml.so"])?, target.find(&["kubectl-divvy"])?);
        Ok(Self { daemon, webhook, nvml, plugin })
    }
}

/// What is built: the demo itself, so that its dependencies have the features that they had, and its programs.
const PACKAGES: [&str; 5] = ["divvy-playground", "divvy-node", "divvy-webhook", "divvy-kubectl", "fake-nvml"];

async fn build(target: &Target) -> anyhow::Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command.args(["build", "--locked", "--profile", &target.profile, "--target-dir"]).arg(&target.root);
    command.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    for package in PACKAGES {
        command.args(["-p", package]);
    }
    command.args(["--bins", "--lib"]);
    let status = command.status().await.with_context(|| format!("starting {}", cargo.display()))?;
    if !status.success() {
        bail!("building divvy-node and divvy-webhook failed ({status}): see above, or use --no-build");
    }
    Ok(())
}

// === impl Target ===

impl Target {
    /// Tests lie in `deps`, programs beside it.
    fn of(program: &Path) -> anyhow::Result<Self> {
        let directory = program.ancestors().skip(1).find(|directory| !directory.ends_with("deps"));
        let name = |directory: &Path| directory.file_name()?.to_str().map(str::to_owned);
        let found = directory.and_then(|directory| Some((directory, name(directory)?, directory.parent()?)));
        let Some((directory, profile, root)) = found else {
            bail!("{} doesn't lie in a target directory: start it with cargo run", program.display());
        };
        let profile = if profile == "debug" { "dev".to_owned() } else { profile };
        Ok(Self { directory: directory.to_owned(), profile, root: root.to_owned() })
    }

    fn find(&self, names: &[&str]) -> anyhow::Result<PathBuf> {
        let paths = names.iter().map(|name| self.directory.join(name));
        let found = paths.into_iter().find(|path| path.is_file());
        found.with_context(|| format!("no {} in {}: leave out --no-build", names[0], self.directory.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Features of each dependency from elsewhere that building these packages compiles.
    fn features(packages: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        let mut tree = std::process::Command::new(env!("CARGO"));
        tree.args(["tree", "--locked", "--offline", "--edges", "normal,build", "--prefix", "none"]);
        tree.args(["--format", "{p}|{f}", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
        tree.args(packages.iter().flat_map(|package| ["-p", package]));
        let output = tree.output().expect("cargo tree");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut features: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let lines = String::from_utf8_lossy(&output.stdout);
        for (package, set) in lines.lines().filter_map(|line| line.split_once('|')) {
            let is_ours = package.contains(" (/");
            if !is_ours {
                features.entry(package.to_owned()).or_default().insert(set.trim_end_matches(" (*)").to_owned());
            }
        }
        features
    }

    /// `cargo run -p divvy-playground` builds itself first, and then the programs.
    #[test]
    fn programs_of_the_demo_compile_no_dependency() {
        let demo = features(&PACKAGES[..1]);
        let is_built =
            |(package, sets): &(String, BTreeSet<String>)| demo.get(package).is_some_and(|built| sets.is_subset(built));
        let again = features(&PACKAGES).into_iter().filter(|dependency| !is_built(dependency));
        let again: Vec<String> = again.map(|(package, _)| package).collect();
        assert_eq!(
            again,
            Vec::<String>::new(),
            "with these features: tests/playground/Cargo.toml has to name what brings them"
        );
    }

    #[test]
    fn profile_and_target_directory_follow_from_the_program() {
        let target = |program: &str| {
            let target = Target::of(Path::new(program)).expect("in a target directory");
            format!("{} {} {}", target.directory.display(), target.profile, target.root.display())
        };
        assert_eq!(target("/w/target/release/divvy-playground"), "/w/target/release release /w/target");
        assert_eq!(target("/w/target/debug/deps/playground-1f"), "/w/target/debug dev /w/target");
        assert!(Target::of(Path::new("/divvy-playground")).is_err());
    }
}

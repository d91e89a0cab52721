//! The command line, and how flags, environment and file become one configuration.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Command, CommandFactory, FromArgMatches, Parser};
use divvy_runtime::settings::{self, KeySet as _, Stop};

use crate::config::{Config, Keys};

/// Serve the aggregated API metrics.nvidia.com/v1alpha1: podresources, which GPUs each pod holds, and gpuinfos, the GPUs of each node
#[derive(Debug, Parser)]
#[command(name = "divvy-apiserver", version, max_term_width = 120)]
struct CommandLine {
    /// YAML file with any of the keys below, in camel case, under "version: v1" [env: CONFIG_FILE]
    #[arg(long)]
    config_file: Option<PathBuf>,
    #[command(flatten)]
    keys: Keys,
}

/// What `args` (the program's name first), `env` and the file that they name make together.
pub fn parse(args: impl IntoIterator<Item = OsString>, env: impl Fn(&str) -> Option<OsString>) -> Result<Config, Stop> {
    let CommandLine { config_file, keys } = CommandLine::from_arg_matches(&command().try_get_matches_from(args)?)?;
    let stated = keys.or(Keys::from_env(&env)?);
    let variable = || env("CONFIG_FILE").filter(|path| !path.is_empty()).map(PathBuf::from);
    let file = config_file.or_else(variable).map_or_else(|| Ok(Keys::default()), |path| settings::read(&path))?;
    Ok(stated.or(file).resolve()?)
}

fn command() -> Command {
    settings::described::<Keys>(CommandLine::command())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use divvy_runtime::settings::{EX_USAGE, Switch};

    use super::*;

    fn load(flags: &[&str], variables: &[(&str, &str)]) -> Result<Config, Stop> {
        let args = ["divvy-apiserver"].iter().chain(flags).map(OsString::from);
        let variables: BTreeMap<_, _> = variables.iter().copied().collect();
        parse(args, |name| variables.get(name).map(Into::into))
    }

    #[test]
    fn help_names_every_key_with_variable_and_default() {
        insta::assert_snapshot!(command().term_width(100).render_help());
        assert_eq!(load(&["--help"], &[]).expect_err("help is no configuration").report(), 0);
    }

    #[test]
    fn flag_wins_over_variable_and_variable_over_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, "version: v1\nnamespace: file\nlegacyWatch: \"on\"\ndrainTimeout: 1s\n")
            .expect("written");
        let path = path.to_str().expect("text");
        let variables = [("CONFIG_FILE", path), ("NAMESPACE", "variable"), ("DRAIN_TIMEOUT", "2s")];
        let config = load(&["--drain-timeout=3s"], &variables).expect("valid");
        assert_eq!((&*config.namespace, config.drain_timeout.get().as_secs()), ("variable", 3));
        assert_eq!(config.legacy_watch, Switch::On);
    }

    #[test]
    fn refusals_exit_with_64_and_name_the_key() {
        assert_eq!(load(&[], &[]).expect_err("no namespace").report(), EX_USAGE);
        let refused = load(&["--namespace=a", "--legacy-watch=sometimes"], &[]).expect_err("a refusal");
        assert!(refused.to_string().contains("--legacy-watch"), "{refused}");
        assert_eq!(refused.report(), EX_USAGE);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("config.yaml");
        std::fs::write(&path, "version: v1\nnamespace: a\nextender: \"on\"\n").expect("written");
        let refused = load(&[&format!("--config-file={}", path.display())], &[]).expect_err("a key of the webhook");
        assert!(refused.to_string().contains("extender: unknown field `extender`"), "{refused}");
        assert_eq!(refused.report(), EX_USAGE);
    }
}

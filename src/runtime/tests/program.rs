//! A program with a key of each kind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches, Parser};

use divvy_api::config::ClusterConfig;
use divvy_runtime::settings::{
    AbsolutePath, ConfigError, EX_USAGE, FileFlags, KeySet, List, ObjectName, Sources, Stop, Within,
};

divvy_runtime::keys! {
    file {
        /// A list of keys.
        entries: Vec<Keys>,
    }
    required {
        /// Who we are
        own_name: ObjectName,
    }
    /// Where it is
    root: AbsolutePath = AbsolutePath::new("/srv"),
    /// Where it is seen
    root_seen: AbsolutePath = root.clone(),
    /// How many
    count: Within<1, 9> = Within::new(3),
    /// What may be missing
    extra: AbsolutePath,
    /// Which of them
    chosen: List<Within<1, 9>> = List(vec![Within::new(1), Within::new(2)]),
    /// Who else
    others: List<ObjectName> = List(vec![]),
}

/// Does nothing
#[derive(Parser)]
#[command(name = "program", version)]
struct CommandLine {
    #[command(flatten)]
    files: FileFlags,
    #[command(flatten)]
    keys: Keys,
}

impl From<ClusterConfig> for Keys {
    /// The test's program counts with what others know as slotsPerCard.
    fn from(config: ClusterConfig) -> Self {
        let count = u32::min(config.slots_per_card.get(), 9);
        Self { count: Some(Within::new(count)), ..Self::default() }
    }
}

fn sources(flags: &[&str], variables: &[(&str, &str)]) -> Result<Sources<Keys>, Stop> {
    let args = ["program"].iter().chain(flags).map(OsString::from);
    let command = divvy_runtime::settings::described::<Keys>(CommandLine::command());
    let CommandLine { files, keys } = CommandLine::from_arg_matches(&command.try_get_matches_from(args)?)?;
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    Ok(Sources::new(files, keys, |name| variables.get(name).map(Into::into))?)
}

fn load(flags: &[&str], variables: &[(&str, &str)]) -> Result<Config, Stop> {
    let sources = sources(flags, variables)?;
    let file = sources.file().map_or_else(|| Ok(Keys::default()), divvy_runtime::settings::read)?;
    Ok(sources.over(file)?.resolve()?)
}

fn with_file<T>(text: &str, use_it: impl FnOnce(&Path) -> T) -> T {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("config.yaml");
    std::fs::write(&path, text).expect("writing the file");
    use_it(&path)
}

#[test]
fn help_states_the_default_of_each_key() {
    insta::assert_snapshot!(
        divvy_runtime::settings::described::<Keys>(CommandLine::command()).term_width(100).render_help()
    );
}

#[test]
fn flag_wins_over_variable_file_and_cluster_config() {
    with_file("version: v1\nownName: file\ncount: 4\nroot: /file\nchosen: [4]\n", |path| {
        let flag = format!("--config-file={}", path.display());
        let config = load(&["--count=6", &flag], &[("COUNT", "5"), ("ROOT", "/variable"), ("CHOSEN", "")]);
        let config = config.expect("valid");
        assert_eq!((config.count.get(), &*config.root), (6, Path::new("/variable")));
        assert_eq!(config.root_seen, config.root, "a default that follows another key");
        assert_eq!(config.chosen, List(vec![Within::new(4)]), "an empty variable is an unset one");
        assert_eq!((&*config.own_name, config.extra), ("file", None));
    });
}

#[test]
fn cluster_config_fills_in_what_no_other_source_has() {
    with_file("version: v1\nslotsPerCard: 8\n", |path| {
        let cluster = path.to_str().expect("text");
        let count = |flags: &[&str]| {
            let flags = [&["--own-name=n"], flags].concat();
            load(&flags, &[("CLUSTER_CONFIG", cluster)]).expect("valid").count.get()
        };
        assert_eq!((count(&[]), count(&["--count=2"])), (8, 2));
        with_file("version: v1\ncount: 4\n", |own| {
            assert_eq!(count(&[&format!("--config-file={}", own.display())]), 4);
        });
    });
    let refused = |text: &str| {
        with_file(text, |path| {
            let flag = format!("--cluster-config={}", path.display());
            let refused = load(&["--own-name=n", &flag], &[]).expect_err("a refusal").to_string();
            refused.replace(&path.display().to_string(), "F")
        })
    };
    assert!(
        refused("version: v1\nslotPerCard: 8\n").starts_with("configuration file F: line 2, column 1: slotPerCard: ")
    );
    assert!(refused("slotsPerCard: 8\n").starts_with("configuration file F: version is missing"));
    assert!(refused("version: v1\nresourceCores: nvidia.com/gpu\n").contains("stands for two amounts"));
}

#[test]
fn config_file_flag_wins_over_its_variable() {
    let file = |flags: &[&str]| {
        let sources = sources(flags, &[("CONFIG_FILE", "/variable.yaml")]).expect("valid");
        sources.file().map(Path::to_owned).expect("a file")
    };
    assert_eq!(file(&["--config-file=/flag.yaml"]), Path::new("/flag.yaml"));
    assert_eq!(file(&[]), Path::new("/variable.yaml"));
    assert_eq!(sources(&[], &[("CONFIG_FILE", "")]).expect("valid").file(), None);
}

#[test]
fn file_only_keys_are_not_passed_to_children() {
    with_file("version: v1\nentries:\n- count: 7\n- {}\n", |path| {
        let keys: Keys = divvy_runtime::settings::read(path).expect("valid");
        assert_eq!(keys.entries[0].count, Some(Within::new(7)));
        assert!(keys.or(Keys::default()).entries.is_empty());
    });
    let stop = load(&["--entries=x"], &[]).expect_err("no flag");
    assert_eq!(stop.report(), EX_USAGE);
}

#[test]
fn printed_configuration_round_trips() {
    let config = load(&["--own-name=n", "--extra=/x", "--others=a,b"], &[]).expect("valid");
    insta::assert_snapshot!(config.to_yaml(), @r#"
    version: v1
    ownName: "n"
    root: /srv
    rootSeen: /srv
    count: 3
    extra: /x
    chosen:
    - 1
    - 2
    others:
    - a
    - b
    "#);
    let again: Keys = with_file(&config.to_yaml(), |path| divvy_runtime::settings::read(path).expect("our own file"));
    assert_eq!(again.resolve().expect("our own file"), config);
}

#[test]
fn refusals_name_the_source() {
    let refused = |text: &str| {
        let refused = |path: &Path| {
            divvy_runtime::settings::read::<Keys>(path)
                .expect_err(text)
                .to_string()
                .replace(&path.display().to_string(), "F")
        };
        with_file(text, refused)
    };
    insta::assert_snapshot!(refused("count: 3\n"), @r#"configuration file F: version is missing: the first line should be "version: v1""#);
    insta::assert_snapshot!(refused("version: v1\ncount: 10\n"), @r#"configuration file F: line 2, column 8: count: "10" is not a whole number from 1 to 9"#);
    insta::assert_snapshot!(refused("version: v1\nconut: 3\n"), @"configuration file F: line 2, column 1: conut: unknown field `conut`, expected one of version, entries, ownName, root, rootSeen, count, extra, chosen, others");
    insta::assert_snapshot!(load(&[], &[]).expect_err("no name"), @"ownName is missing: set --own-name, the environment variable OWN_NAME or ownName in the file");
    insta::assert_snapshot!(load(&[], &[("COUNT", "0")]).expect_err("too few"), @r#"environment variable COUNT="0": "0" is not a whole number from 1 to 9"#);
    let missing =
        divvy_runtime::settings::read::<Keys>(Path::new("/nonexistent/config.yaml")).expect_err("no such file");
    assert!(matches!(missing, ConfigError::Unreadable { .. }));
}

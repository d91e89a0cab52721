//! The Dockerfile and `hack/image` build the images that the manifests name, and the same ones. No image is built here.

use serde_json::Value;

use crate::objects;

/// The lines of the stage that is called so.
fn stage(name: &str) -> Vec<String> {
    let text = objects::text("Dockerfile").replace("\\\n", " ");
    let mut lines =
        text.lines().skip_while(|line| !(line.starts_with("FROM ") && line.ends_with(&format!(" AS {name}"))));
    let from = lines.next().unwrap_or_else(|| panic!("no stage {name}"));
    [from].into_iter().chain(lines.take_while(|line| !line.starts_with("FROM "))).map(str::to_owned).collect()
}

/// Asserts that `text`, a part of `file`, contains all of these.
fn assert_contains(file: &str, text: &str, wanted: &[String]) {
    for part in wanted {
        assert!(text.contains(part), "{file}: no {part:?} in:\n{text}");
    }
}

#[test]
fn each_program_has_an_image_of_its_version() {
    let objects = [objects::all("deploy/manifests"), objects::read("deploy/mps/divvy-mps.yaml")].concat();
    let script = objects::text("hack/image");
    for (kind, program, manifest, profile) in [
        ("DaemonSet", "divvy-node", "src/node/Cargo.toml", "node"),
        ("DaemonSet", "divvy-mps", "src/mps/Cargo.toml", "dist"),
        ("Deployment", "divvy-webhook", "webhook/Cargo.toml", "dist"),
    ] {
        let workload = objects::find(&objects, &format!("{kind} divvy-system/{program}"));
        let container = &workload["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], format!("{program}:{}", env!("CARGO_PKG_VERSION")));
        assert_eq!(container["command"], Value::Null, "the image's entry point");
        assert_contains(manifest, &objects::text(manifest), &[format!("name = \"{program}\"")]);
        let copy = format!("COPY --from=build /{program} /usr/bin/{program}\n");
        let entry_point = format!("ENTRYPOINT [\"/usr/bin/{program}\"]");
        assert_contains("Dockerfile", &stage(program).join("\n"), &[copy, entry_point]);
        let build = [format!("--package {program} "), format!("target/{profile}/{program} ")];
        assert_contains("Dockerfile", &stage("build").join("\n"), &build);
        let root = format!("make_root \"$work/{program}\" \"$built/{profile}/{program}\"\n");
        assert_contains("hack/image", &script, &[root, format!("\narchive {program} ")]);
    }
}

#[test]
fn both_builds_compile_the_same() {
    let (build, node, script) = (stage("build").join("\n"), stage("node").join("\n"), objects::text("hack/image"));
    let of = |text: &str, start: &str, end: &str| {
        let found: Vec<String> = text
            .lines()
            .flat_map(|line| line.split("&&"))
            .filter_map(|part| Some(part.split_once(start)?.1.split(end).next()?.trim().to_owned()))
            .collect();
        assert!(!found.is_empty(), "no {start:?} in:\n{text}");
        found
    };
    assert_eq!(of(&build, "cargo build ", "&&"), of(&script, "cargo build --quiet ", ">&2"));
    let variables = of(&node, "ENV ", "\n").join(" ");
    let wanted: Vec<String> = variables.split(' ').map(|variable| format!("\"{variable}\"")).collect();
    assert_contains("hack/image", &script, &wanted);
    for program in ["divvy-node", "divvy-mps"] {
        assert!(stage(program)[0].starts_with("FROM node "));
        assert_contains("hack/image", &script, &[format!("add_for_nvml \"$work/{program}\"")]);
        let archive = script.lines().find(|line| line.starts_with(&format!("archive {program} "))).unwrap();
        assert_contains("hack/image", archive, &["$path,$arenas".to_owned()]);
    }
    let library = divvy_api::container::LIBRARY;
    assert_contains("Dockerfile", &stage("divvy-node").join("\n"), &[format!(" {library}\n")]);
    assert_contains("hack/image", &script, &[format!("$work/divvy-node{library}\"")]);
}

#[test]
fn webhook_is_nobody_in_image_and_pod() {
    let objects = objects::all("deploy/manifests");
    let deployment = objects::find(&objects, "Deployment divvy-system/divvy-webhook");
    let context = &deployment["spec"]["template"]["spec"]["securityContext"];
    let user = format!("{}:{}", context["runAsUser"], context["runAsGroup"]);
    assert!(stage("divvy-webhook").contains(&format!("USER {user}")), "{user}");
    let archive = format!("\narchive divvy-webhook \"\\\"User\\\":\\\"{user}\\\",");
    assert_contains("hack/image", &objects::text("hack/image"), &[archive]);
}

#[test]
fn base_images_are_named_by_build_arguments_only() {
    let text = objects::text("Dockerfile");
    let own = |name: &str| text.contains(&format!(" AS {name}\n"));
    for from in text.lines().filter_map(|line| line.strip_prefix("FROM ")?.split(' ').next()) {
        assert!(from.starts_with("${") || own(from), "{from}");
    }
    assert!(!text.contains("# syntax="), "would be fetched from a registry");
}

#[test]
fn releases_are_built_by_the_toolchain_of_the_dockerfile() {
    let text = objects::text("Dockerfile");
    let image = text.lines().find_map(|line| line.strip_prefix("ARG RUST_IMAGE=rust:")).expect("an argument");
    let (version, _) = image.split_once('-').expect("a release of Debian");
    let install = format!("rustup toolchain install {version} ");
    assert_contains("release.yml", &objects::text(".github/workflows/release.yml"), &[install]);
}

//! The Dockerfile builds the images that the manifests name. No image is built here.

use crate::objects;

/// The lines of the stage that is called so.
fn stage(name: &str) -> Vec<String> {
    let text = objects::text("Dockerfile").replace("\\\n", " ");
    let mut lines =
        text.lines().skip_while(|line| !(line.starts_with("FROM ") && line.ends_with(&format!(" AS {name}"))));
    let from = lines.next().unwrap_or_else(|| panic!("no stage {name}"));
    [from].into_iter().chain(lines.take_while(|line| !line.starts_with("FROM "))).map(str::to_owned).collect()
}

#[test]
fn each_program_has_an_image_of_its_version() {
    let objects = objects::all("deploy/manifests");
    for (kind, program, manifest, profile) in [
        ("DaemonSet", "divvy-node", "src/node/Cargo.toml", "node"),
        ("Deployment", "divvy-webhook", "webhook/Cargo.toml", "dist"),
    ] {
        let workload = objects::find(&objects, &format!("{kind} divvy-system/{program}"));
        let image = &workload["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(*image, format!("{program}:{}", env!("CARGO_PKG_VERSION")));
        let stage = stage(program).join("\n");
        assert!(stage.contains(&format!("COPY --from=build /{program} /usr/bin/{program}\n")), "{stage}");
        assert!(stage.contains(&format!("ENTRYPOINT [\"/usr/bin/{program}\"]")), "{stage}");
        assert!(objects::text(manifest).contains(&format!("name = \"{program}\"")), "{manifest}");
        let build = self::stage("build").join("\n");
        assert!(
            build.contains(&format!("--package {program} ")) && build.contains(&format!("target/{profile}/{program} "))
        );
    }
}

#[test]
fn the_webhook_is_nobody_in_its_image_and_in_its_pod() {
    let objects = objects::all("deploy/manifests");
    let deployment = objects::find(&objects, "Deployment divvy-system/divvy-webhook");
    let context = &deployment["spec"]["template"]["spec"]["securityContext"];
    let user = format!("USER {}:{}", context["runAsUser"], context["runAsGroup"]);
    assert!(stage("divvy-webhook").contains(&user), "{user}");
}

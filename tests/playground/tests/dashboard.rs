//! `kubectl divvy dashboard` of the playground's cluster, in a real browser. Skipped, with a message, where there is none.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

use std::ffi::OsString;

use divvy_playground::args::Args;
use divvy_playground::console::Console;
use divvy_playground::run::{Inputs, run};
use divvy_testkit::binaries::Binaries;
use divvy_testkit::browser::{self, Page};

/// Views of the page, by their place in its address, with what they show beside the navigation.
const VIEWS: [(&str, &str); 3] = [("#/pods", "Pods"), ("#/waiting", "Waiting"), ("#/node/node-1", "Conditions")];

#[tokio::test(flavor = "multi_thread")]
async fn dashboard_shows_the_cluster_in_a_browser() {
    let Some(browser) = browser::installed() else {
        eprintln!("skipped: no chromium in PATH");
        return;
    };
    let flags = "divvy-playground --dashboard --node-limit 2 --admissions 60 --load 150 --seed 5";
    let args = Args::read(flags.split(' ').map(OsString::from)).unwrap();
    let inputs = Inputs::read(&args).unwrap();
    let binaries = Binaries::get(false).await.unwrap();
    let directory = tempfile::Builder::new().prefix("divvy-").tempdir_in("/tmp").unwrap();
    let session = run(&args, inputs, &binaries, directory.path(), Console::new(std::io::sink())).await.unwrap();
    let line = &session.dashboard.as_ref().unwrap().line;
    let url = &line[line.find("http://").unwrap()..];

    let mut page = Page::open(&browser, url).await.unwrap();
    for node in ["node-0", "node-1"] {
        page.until_shown(node).await.unwrap();
    }
    page.until_shown("Live").await.unwrap();
    for (place, shown) in VIEWS {
        page.value(&format!("location.hash = {place:?}")).await.unwrap();
        page.until_shown(shown).await.unwrap();
    }

    // By keyboard alone: the search, and a node that it finds.
    page.value("location.hash = '#/'").await.unwrap();
    page.until("location.hash === '#/' || location.hash === ''").await.unwrap();
    page.press("/").await.unwrap();
    page.until("document.activeElement.matches('input[type=search]')").await.unwrap();
    page.write("node-1").await.unwrap();
    page.until("!document.querySelector('main').innerText.includes('node-0')").await.unwrap();
    page.press("Escape").await.unwrap();

    // A pod that never fits has hints for what would help.
    page.value("location.hash = '#/waiting'").await.unwrap();
    let pod = "[...document.querySelectorAll('main a')].find(link => link.hash.startsWith('#/pod/'))";
    page.until(&format!("!!{pod}")).await.unwrap();
    page.value(&format!("{pod}.click()")).await.unwrap();
    page.until_shown("Answers of the nodes").await.unwrap();

    // The daemons are no pods here, so what containers use can't be asked.
    let errors: Vec<&str> = page.errors().filter(|error| !error.contains("/usage?node=")).collect();
    assert_eq!(errors, Vec::<&str>::new());
    let elsewhere = "performance.getEntriesByType('resource').map(entry => entry.name).filter(name => !name.startsWith(location.origin))";
    assert_eq!(page.value(elsewhere).await.unwrap(), serde_json::json!([]), "nothing is loaded from elsewhere");
}

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::*;

/// A volume of a Secret as the kubelet lays it out: links through one that is swapped.
struct Volume(tempfile::TempDir);

impl Volume {
    fn new() -> Self {
        let volume = Self(tempfile::tempdir().unwrap());
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(Path::new("..data").join(name), volume.path(name)).unwrap();
        }
        volume
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn files(&self) -> Files {
        Files { certificate: self.path("tls.crt"), key: self.path("tls.key") }
    }

    /// Swaps all files at once.
    fn swap(&self, version: &str, contents: &Data) {
        std::fs::create_dir(self.path(version)).unwrap();
        for (name, content) in contents {
            std::fs::write(self.path(version).join(name), &content.0).unwrap();
        }
        symlink(version, self.path("..next")).unwrap();
        std::fs::rename(self.path("..next"), self.path("..data")).unwrap();
    }
}

/// Some looks at the files later; time is virtual.
async fn later() {
    tokio::time::sleep(Duration::from_secs(10)).await;
}

fn shown(identity: &Identity) -> Option<CertificateDer<'static>> {
    identity.now().map(|credentials| leaf(&credentials))
}

#[tokio::test(start_paused = true)]
async fn swapped_files_are_loaded_and_broken_ones_ignored() {
    let (volume, identity, stop) = (Volume::new(), Identity::unknown(), CancellationToken::new());
    let _end = stop.clone().drop_guard();
    tokio::spawn(keep_files(volume.files(), identity.clone(), stop));
    later().await;
    assert_eq!(shown(&identity), None, "no files yet");
    let (first, second) = (secret(), secret());
    volume.swap("..1", &first);
    later().await;
    assert_eq!(shown(&identity), Some(leaf(&understood(&first))));
    let mut halves = second.clone();
    halves.insert("tls.key".to_owned(), first["tls.key"].clone());
    volume.swap("..2", &halves);
    later().await;
    assert_eq!(shown(&identity), Some(leaf(&understood(&first))), "certificate and key are no pair");
    volume.swap("..3", &Data::new());
    later().await;
    assert_eq!(shown(&identity), Some(leaf(&understood(&first))), "the files are gone");
    volume.swap("..4", &second);
    later().await;
    assert_eq!(shown(&identity), Some(leaf(&understood(&second))));
}

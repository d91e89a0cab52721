//! Capabilities of MIG instances: a device node for the GPU instance, and one for the compute instance.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// `/proc/driver/nvidia-caps/mig-minors`: a capability and the number of its node on each line, such as
/// `gpu0/gi1/ci0/access 13`, for every instance that there could be (NVIDIA's MIG user guide).
///
/// The driver says the same in `/proc/driver/nvidia/capabilities`, but a container that NVIDIA's runtime has started sees
/// there only what existed at its own start. NVIDIA's toolkit reads this file too.
#[derive(Debug)]
pub(super) struct MigMinors {
    file: PathBuf,
    text: io::Result<String>,
}

// === impl MigMinors ===

impl MigMinors {
    /// Reads the file below `procfs`; that of any container will do.
    pub(super) fn read(procfs: &Path) -> Self {
        let file = procfs.join("driver/nvidia-caps/mig-minors");
        Self { text: fs::read_to_string(&file), file }
    }

    /// The names below `/dev` of the two nodes of an instance on the GPU with this minor number, each with the file for
    /// which nvidia-modprobe makes it; or why they are not known.
    pub(super) fn nodes(&self, gpu: u32, gi: u32, ci: u32) -> Result<[(String, String); 2], String> {
        Ok([self.node(gpu, &format!("gi{gi}"))?, self.node(gpu, &format!("gi{gi}/ci{ci}"))?])
    }

    fn node(&self, gpu: u32, slice: &str) -> Result<(String, String), String> {
        let file = self.file.display();
        let text = self.text.as_ref().map_err(|error| format!("reading {file}: {error}"))?;
        let capability = format!("gpu{gpu}/{slice}/access");
        let mut numbers =
            text.lines().filter_map(|line| line.strip_prefix(&capability)?.strip_prefix(' ')?.parse().ok());
        let number: u32 = numbers.next().ok_or_else(|| format!("{file} has no {capability}"))?;
        let access = format!("/proc/driver/nvidia/capabilities/gpu{gpu}/mig/{slice}/access");
        Ok((format!("nvidia-caps/nvidia-cap{number}"), access))
    }
}

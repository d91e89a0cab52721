//! Compiles the two protocol files without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for file in ["deviceplugin_v1beta1.proto", "podresources_v1.proto"] {
        println!("cargo::rerun-if-changed={file}");
        let descriptors = protox::compile([file], ["."])?;
        tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    }
    Ok(())
}

//! Compiles the service definition without a system protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["dp_pvi/v1/federation.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".").build_transport(true).compile_fds(files)?;
    Ok(())
}

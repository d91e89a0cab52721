//! Binds the library's references to its own functions, as the real one's are: a library that is loaded before it with
//! functions of the same names must not get between.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo::rerun-if-changed=build.rs");
}

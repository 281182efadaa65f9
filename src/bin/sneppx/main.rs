//! The command line of Sneppx.

fn main() {}

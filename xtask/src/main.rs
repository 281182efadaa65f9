//! Tasks for people who work on Sneppx: test, setup, bench.

fn main() {}

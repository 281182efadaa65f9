//! `#[derive(Module)]` for Sneppx.

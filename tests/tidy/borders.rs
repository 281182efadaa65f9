//! Who may know whom: features, backend crates and the contract.

use super::source::{Finding, Source, Tree, close, is_word, words};

/// The door of the framework: the only files of `src/` that know features and backend crates.
const DOORS: &[&str] = &["src/backend.rs", "src/lib.rs"];

/// Crates behind the door. `sneppx_single` is not one of them: it has no hardware to choose.
pub const BACKEND_CRATES: &[&str] = &["sneppx_cpu", "sneppx_mpi", "sneppx_cuda", "sneppx_wgpu"];

/// Crates a backend may depend on besides foreign ones: the contract and sources it runs.
const BELOW_BACKENDS: &[&str] = &["sneppx-contract", "sneppx-kernels", "sneppx-shaders"];

/// `cfg(feature …)` stands at the door only, so that no other line depends on what is built.
pub fn cfg_feature_at_the_door(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust("") {
        let crate_root = file.path.starts_with("backends/") && file.path.ends_with("/src/lib.rs");
        if crate_root || DOORS.contains(&file.path.as_str()) {
            continue;
        }
        for at in asks_for_a_feature(file) {
            let message = "asks for a feature; make it a file of its own, declared in src/lib.rs \
                           or src/backend.rs, or a target with `required-features`";
            findings.push(file.finding(at, message));
        }
    }
    findings
}

/// Where `file` has a `cfg` of any kind that mentions a feature.
fn asks_for_a_feature(file: &Source) -> Vec<usize> {
    let code = &file.code;
    let condition = |at: usize, name: &str| {
        let behind = code[at + name.len()..].trim_start().trim_start_matches('!').trim_start();
        let open = code.len() - behind.len();
        behind.starts_with('(') && words(&code[open..close(code, open)], "feature").next().is_some()
    };
    ["cfg", "cfg_attr"]
        .into_iter()
        .flat_map(|name| file.words(name).filter(move |&at| condition(at, name)))
        .collect()
}

/// In `src/`, only the door names a backend crate.
pub fn backend_crates_stay_behind_the_door(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust("src/").filter(|file| !DOORS.contains(&file.path.as_str())) {
        for name in BACKEND_CRATES {
            let message = format!("names `{name}`; stay generic over `Device`");
            findings.extend(file.words(name).map(|at| file.finding(at, message.clone())));
        }
    }
    findings
}

/// A backend's manifest names no other crate of this workspace but the contract and the sources
/// it runs; tests may use more.
pub fn backends_know_only_the_contract(tree: &Tree) -> Vec<Finding> {
    let manifests = tree
        .files
        .iter()
        .filter(|file| file.path.starts_with("backends/") && file.path.ends_with("/Cargo.toml"));
    let mut findings = Vec::new();
    for file in manifests {
        let (mut at, mut section) = (0, "");
        for line in file.text.split_inclusive('\n') {
            let trimmed = line.trim();
            if trimmed.starts_with('[') {
                section = trimmed.trim_matches(['[', ']']);
            } else if section.ends_with("dependencies") && !section.ends_with("dev-dependencies") {
                let end = trimmed.find(|c| !is_word(c) && c != '-').unwrap_or(trimmed.len());
                let name = &trimmed[..end];
                if name.starts_with("sneppx-") && !BELOW_BACKENDS.contains(&name) {
                    let message = format!("depends on `{name}`; a backend knows the contract only");
                    findings.push(file.finding(at, message));
                }
            }
            at += line.len();
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_feature_is_found_in_every_spelling() {
        let found = |path: &str, text: &str| {
            cfg_feature_at_the_door(&Tree::of(&[(path, text)]))
                .iter()
                .map(|f| f.line)
                .collect::<Vec<_>>()
        };
        let none: Vec<usize> = Vec::new();
        assert_eq!(found("src/nn.rs", "#[cfg(feature = \"cpu\")]\nfn f() {}"), [1]);
        assert_eq!(found("src/nn.rs", "\n#[cfg(all(test,\n feature = \"a\"))] fn f() {}"), [2]);
        assert_eq!(found("tests/a.rs", "#![cfg_attr(not(feature = \"a\"), ignore)]"), [1]);
        assert_eq!(found("src/nn.rs", "if cfg!(feature = \"a\") {}"), [1]);
        assert_eq!(found("src/nn.rs", "#[cfg(test)] // cfg(feature\nfn feature() {}"), none);
        assert_eq!(found("src/backend.rs", "#[cfg(feature = \"cpu\")] fn f() {}"), none);
    }

    #[test]
    fn a_backend_named_in_the_framework_is_found() {
        let found = |path, text| backend_crates_stay_behind_the_door(&Tree::of(&[(path, text)]));
        assert_eq!(found("src/nn.rs", "use sneppx_cpu::Cpu;").len(), 1);
        assert_eq!(found("src/nn.rs", "// sneppx_cpu\nuse sneppx_single::Solo;").len(), 0);
        assert_eq!(found("src/backend.rs", "use sneppx_cpu::Cpu;").len(), 0);
    }

    #[test]
    fn a_backend_that_depends_on_another_is_found() {
        let text = "[dependencies]\nsneppx-contract.workspace = true\nsneppx-cpu = \"1\"\n\
                    [dev-dependencies]\nsneppx-cpu.workspace = true\n";
        let found =
            backends_know_only_the_contract(&Tree::of(&[("backends/mpi/Cargo.toml", text)]));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [3]);
    }
}

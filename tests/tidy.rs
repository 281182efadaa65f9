//! The rules of the house, as tests.
//!
//! Each test reads the source tree and fails with one line per finding: file, line, what is wrong
//! and what to do. The rules themselves are pure functions on texts, in `tidy/`, each with a test
//! on made-up input that shows it can fail. The lists of exceptions may only shrink: an entry that
//! is no longer needed is a finding too.

use tidy::source::{Finding, Tree};
use tidy::{borders, format, imports, promises, size, unsafe_rooms};

mod tidy {
    pub mod borders;
    pub mod format;
    pub mod imports;
    pub mod promises;
    pub mod size;
    pub mod source;
    pub mod unsafe_rooms;
}

/// Fails with every finding of `rule` on the files of this repository.
fn hold(rule: impl Fn(&Tree) -> Vec<Finding>) {
    let findings = rule(&Tree::of_the_repository());
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(lines.is_empty(), "{} findings\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn imports_in_src_point_left() {
    hold(|tree| imports::point_left(tree, imports::ORDER));
}

#[test]
fn nothing_in_src_imports_the_backend_module() {
    hold(imports::backend_is_imported_by_nobody);
}

#[test]
fn only_the_door_names_a_backend_crate() {
    hold(borders::backend_crates_stay_behind_the_door);
}

#[test]
fn features_are_asked_for_at_the_door_only() {
    hold(borders::cfg_feature_at_the_door);
}

#[test]
fn no_backend_depends_on_another() {
    hold(borders::backends_know_only_the_contract);
}

#[test]
fn unsafe_code_lives_in_its_rooms_and_is_argued() {
    hold(|tree| unsafe_rooms::fenced(tree, unsafe_rooms::ROOMS));
}

#[test]
fn the_framework_and_the_contract_forbid_unsafe_code() {
    hold(unsafe_rooms::forbidden_in_safe_crates);
}

#[test]
fn functions_have_at_most_70_lines() {
    hold(|tree| size::functions(tree, size::LONG_FUNCTIONS));
}

#[test]
fn files_have_at_most_400_lines() {
    hold(|tree| size::files(tree, size::LONG_FILES));
}

#[test]
fn files_are_named_after_an_idea() {
    hold(format::named_after_an_idea);
}

#[test]
fn lines_have_at_most_100_columns() {
    hold(format::at_most_100_columns);
}

#[test]
fn no_file_holds_a_path_of_somebodys_machine() {
    hold(format::no_machine_paths);
}

#[test]
fn every_method_of_the_contract_has_a_conformance_check() {
    hold(promises::methods_are_checked);
}

#[test]
fn every_autograd_rule_has_a_gradient_check() {
    hold(promises::rules_are_checked);
}

#[test]
fn the_readme_lists_every_feature() {
    hold(promises::features_are_listed);
}

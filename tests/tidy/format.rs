//! Names of files, width of lines, and paths that only one machine has.

use super::source::{Finding, Tree, is_word};

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc", "types"];

/// The widest line.
const MOST_COLUMNS: usize = 100;

/// No Rust file or folder bears a name that fits everything.
pub fn named_after_an_idea(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust("") {
        let inside = file.path.trim_end_matches(".rs");
        if let Some(name) = inside.split('/').find(|part| EMPTY_NAMES.contains(part)) {
            let message = format!("`{name}` says nothing; name it after the one idea it holds");
            findings.push(file.finding(0, message));
        }
    }
    findings
}

/// Rust lines have at most 100 columns, addresses and tables of numbers excepted.
pub fn at_most_100_columns(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust("") {
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            let is_address = line.contains("http://") || line.contains("https://");
            if columns > MOST_COLUMNS && !is_address && !is_table(line) {
                let message = format!("{columns} columns, {MOST_COLUMNS} are allowed; break it");
                findings.push(Finding { path: file.path.clone(), line: index + 1, message });
            }
        }
    }
    findings
}

/// Whether a line holds nothing but numbers and what separates them.
fn is_table(line: &str) -> bool {
    line.chars().all(|c| c.is_ascii_hexdigit() || " _-+.,xX()[]{}".contains(c))
}

/// No text file contains an absolute path of the machine it was written on.
pub fn no_machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        // Joined here, or this file would be a finding itself.
        for folder in ["work", "root"].map(|name| format!("/{name}/")) {
            for (at, _) in file.text.match_indices(&folder) {
                let before = file.text[..at].chars().next_back();
                let inside_another = before.is_some_and(|c| is_word(c) || ".-~/}$*".contains(c));
                if !inside_another {
                    let message = format!("`{folder}` is a path of one machine; make it relative");
                    findings.push(file.finding(at, message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_everything_are_found() {
        let tree = Tree::of(&[
            ("src/nn/utils.rs", ""),
            ("src/common/loss.rs", ""),
            ("src/nn/loss.rs", ""),
            ("src/datatypes.rs", ""),
        ]);
        let paths: Vec<String> = named_after_an_idea(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(paths, ["src/nn/utils.rs", "src/common/loss.rs"]);
    }

    #[test]
    fn wide_lines_are_found_but_for_addresses_and_tables() {
        let wide = format!("// {}", "é".repeat(98));
        let exact = format!("// {}", "é".repeat(97));
        let address = format!("{wide} https://example.org");
        let table = format!("    {}", "0x1f, ".repeat(20));
        let text = [exact, wide, address, table].join("\n");
        let found = at_most_100_columns(&Tree::of(&[("src/a.rs", &text)]));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn machine_paths_are_found() {
        let path = |name: &str| format!("see /{name}/data.txt");
        let text = [path("work"), path("root"), "https://a.org/work/x".into(), "w/work/".into()];
        let found = no_machine_paths(&Tree::of(&[("README.md", &text.join("\n"))]));
        assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1, 2]);
    }
}

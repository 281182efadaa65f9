//! Promises with a check each: methods of the contract, derivatives, features.

use std::collections::BTreeSet;

use super::source::{Finding, Source, Tree, close, identifier, words};

/// The traits whose methods are promises.
const TRAITS: &[&str] = &["Memory", "Kernels", "Communicator"];

const CONTRACT: &str = "backends/contract/src/";
const CONFORMANCE: &str = "backends/contract/src/conformance/";
const RULES: &str = "src/autograd/rules/";

/// Every method of the contract's traits is called somewhere in the conformance checks.
pub fn methods_are_checked(tree: &Tree) -> Vec<Finding> {
    let checks: Vec<&Source> = tree.rust(CONFORMANCE).collect();
    let is_called = |method: &str| {
        checks.iter().any(|file| {
            file.words(method).any(|at| {
                let before = file.code[..at].trim_end();
                before.ends_with('.') || before.ends_with("::")
            })
        })
    };
    let mut findings = Vec::new();
    for name in TRAITS {
        let Some((file, at)) = find_trait(tree, name) else {
            let message = format!("trait `{name}` is not defined below this folder");
            findings.push(Finding { path: CONTRACT.into(), line: 1, message });
            continue;
        };
        for (at, method) in methods(file, at).into_iter().filter(|(_, method)| !is_called(method)) {
            let message = format!("`{name}::{method}` has no check; call it in {CONFORMANCE}");
            findings.push(file.finding(at, message));
        }
    }
    findings
}

/// The file that defines `pub trait name`, and where.
fn find_trait<'a>(tree: &'a Tree, name: &str) -> Option<(&'a Source, usize)> {
    let defines = |file: &'a Source| {
        let at = file.words("trait").find(|at| identifier(&file.code[at + 6..]) == name)?;
        Some((file, at))
    };
    tree.rust(CONTRACT).find_map(defines)
}

/// The methods that the trait at `at` declares itself, with their places.
fn methods(file: &Source, at: usize) -> Vec<(usize, &str)> {
    let Some(open) = file.code[at..].find('{').map(|offset| at + offset) else { return Vec::new() };
    let end = close(&file.code, open);
    let nesting = |at: usize| {
        let inside = &file.code[open..at];
        inside.matches('{').count() - inside.matches('}').count()
    };
    file.words("fn")
        .filter(|&at| open < at && at < end && nesting(at) == 1)
        .map(|at| (at, identifier(file.code[at + 2..].trim_start())))
        .collect()
}

/// Every name that a rule of `src/autograd/rules/` gives itself occurs in the gradient checks.
pub fn rules_are_checked(tree: &Tree) -> Vec<Finding> {
    let checks = ["tests/gradients.rs", "tests/gradients/"];
    let checked: BTreeSet<&str> = checks
        .into_iter()
        .flat_map(|prefix| tree.rust(prefix))
        .flat_map(|file| file.strings.iter().map(String::as_str))
        .collect();
    let mut findings = Vec::new();
    for file in tree.rust(RULES) {
        let names = rule_names(file);
        let has_rules = words(&file.code, "Rule").any(|at| {
            file.code[..at].lines().next_back().is_some_and(|line| line.starts_with("impl"))
        });
        if has_rules && names.is_empty() {
            let message = "its rules have no names; give each a `fn name(&self) -> &'static str`";
            findings.push(file.finding(0, message));
        }
        for (at, name) in names.into_iter().filter(|(_, name)| !checked.contains(name.as_str())) {
            let message = format!(
                "rule \"{name}\" has no gradient check; add one under this name to tests/gradients"
            );
            findings.push(file.finding(at, message));
        }
    }
    findings
}

/// The literals in the functions of `file` that return `&'static str`: the names of its rules.
fn rule_names(file: &Source) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for at in file.words("fn") {
        let Some(open) = file.code[at..].find('{').map(|offset| at + offset) else { continue };
        if file.code[at..open].trim_end().ends_with("-> &'static str") {
            let body = &file.text[open..close(&file.code, open)];
            let strings = Source::new("body.rs", body).strings;
            names.extend(strings.into_iter().map(|name| (at, name)));
        }
    }
    names
}

/// The features of the root manifest are the rows of the README's table of features.
pub fn features_are_listed(tree: &Tree) -> Vec<Finding> {
    let missing_file = |path: &str| {
        vec![Finding { path: path.into(), line: 1, message: "does not exist; write it".into() }]
    };
    let Some(manifest) = tree.file("Cargo.toml") else { return missing_file("Cargo.toml") };
    let Some(readme) = tree.file("README.md") else { return missing_file("README.md") };
    let (features, rows) = (features(&manifest.text), table_of_features(&readme.text));
    let mut findings = Vec::new();
    for (name, line) in features.iter().filter(|(name, _)| !rows.iter().any(|row| row.0 == *name)) {
        let message = format!("feature `{name}` has no row `| \\`{name}\\` |` in README.md");
        findings.push(Finding { path: "Cargo.toml".into(), line: *line, message });
    }
    for (name, line) in rows.iter().filter(|(row, _)| !features.iter().any(|f| f.0 == *row)) {
        let message = format!("`{name}` is not a feature of Cargo.toml; remove the row");
        findings.push(Finding { path: "README.md".into(), line: *line, message });
    }
    findings
}

/// The names in `[features]` with their lines, the set `default` excepted.
fn features(manifest: &str) -> Vec<(&str, usize)> {
    let mut section = "";
    let mut features = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            section = line.trim();
        } else if let Some((name, _)) = line.split_once('=')
            && section == "[features]"
            && !name.starts_with(['#', ' '])
            && name.trim() != "default"
        {
            features.push((name.trim(), index + 1));
        }
    }
    features
}

/// The names in backticks in the first cells of the table whose first heading is "feature".
fn table_of_features(readme: &str) -> Vec<(&str, usize)> {
    let mut rows = Vec::new();
    let mut inside = false;
    for (index, line) in readme.lines().enumerate() {
        let first_cell = line.strip_prefix('|').and_then(|rest| rest.split('|').next());
        let Some(cell) = first_cell else {
            inside = false;
            continue;
        };
        if cell.trim().eq_ignore_ascii_case("feature") {
            inside = true;
        } else if let Some(name) = cell.split('`').nth(1).filter(|_| inside) {
            rows.push((name, index + 1));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_method_without_a_check_is_found() {
        let device = "pub trait Memory {\n fn alloc(&self);\n fn read(&self) { fn inner() {} }\n}\n\
                      pub trait Kernels: Memory { fn fill(&self); }\n\
                      pub trait Communicator { fn rank(&self) -> usize; }";
        let checks = "// device.read()\nfn fill<D: Kernels>(d: D) { d.fill(); Memory::alloc(&d); \
                      c\n .rank() } fn read() {}";
        let tree = Tree::of(&[
            ("backends/contract/src/device.rs", device),
            ("backends/contract/src/conformance/memory.rs", checks),
        ]);
        let found = methods_are_checked(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, &found[0].message[..14]), (3, "`Memory::read`"));
        assert_eq!(methods_are_checked(&Tree::of(&[])).len(), TRAITS.len());
    }

    #[test]
    fn a_rule_without_a_gradient_check_is_found() {
        let rules = "impl Rule<D> for A { fn name(&self) -> &'static str { \"exp\" } }\n\
                     impl Rule<D> for B { fn name(&self) -> &'static str { name_of(self) } }\n\
                     fn name_of(b: &B) -> &'static str {\n match b { X => \"add\", \
                     Y => \"sub\" } }";
        let tests = "check(\"exp\"); // \"add\"\ncheck(\"sub\");";
        let tree = Tree::of(&[("src/autograd/rules/a.rs", rules), ("tests/gradients/a.rs", tests)]);
        let found = rules_are_checked(&tree);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.starts_with("rule \"add\"") && found[0].line == 3);
        let nameless = Tree::of(&[("src/autograd/rules/a.rs", "impl<D> Rule<D> for A {}")]);
        assert!(messages(rules_are_checked(&nameless))[0].contains("have no names"));
    }

    #[test]
    fn features_and_rows_must_agree() {
        let manifest =
            "[features]\n# a = b\ndefault = [\"cpu\"]\ncpu = []\nmpi = []\n\n[lib]\nx = 1";
        let readme = "| `other` | x |\n\n| Feature | What |\n|---|---|\n| `cpu` (default) | x |\n\
                      | `gone` | x |\n\n| preset |\n|---|\n| `quick` |\n";
        let tree = Tree::of(&[("Cargo.toml", manifest), ("README.md", readme)]);
        let found = features_are_listed(&tree);
        let places: Vec<_> = found.iter().map(|f| (f.path.as_str(), f.line)).collect();
        assert_eq!(places, [("Cargo.toml", 5), ("README.md", 6)]);
        assert_eq!(messages(features_are_listed(&Tree::of(&[("Cargo.toml", manifest)]))).len(), 1);
    }
}

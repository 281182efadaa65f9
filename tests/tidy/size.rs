//! How long functions and files may be.

use super::source::{Finding, Source, Tree, identifier};

/// The longest function, from its `fn` to its closing brace.
const MOST_LINES_OF_A_FUNCTION: usize = 70;

/// The longest file.
const MOST_LINES_OF_A_FILE: usize = 400;

/// Functions that may be longer: path, name and their longest. May only shrink.
pub const LONG_FUNCTIONS: &[(&str, &str, usize)] = &[];

/// Files that may be longer: path and their longest. May only shrink.
pub const LONG_FILES: &[(&str, usize)] = &[];

/// Functions have at most 70 lines, or what their entry in `exceptions` says.
pub fn functions(tree: &Tree, exceptions: &[(&str, &str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = vec![false; exceptions.len()];
    for file in tree.rust("") {
        for (at, name, lines) in function_lengths(file) {
            if lines <= MOST_LINES_OF_A_FUNCTION {
                continue;
            }
            let entry = exceptions.iter().position(|e| (e.0, e.1) == (file.path.as_str(), name));
            let most = entry.map_or(MOST_LINES_OF_A_FUNCTION, |entry| exceptions[entry].2);
            if let Some(entry) = entry {
                used[entry] = true;
            }
            if lines > most {
                let message = format!("`{name}` has {lines} lines, {most} are allowed; split it");
                findings.push(file.finding(at, message));
            }
        }
    }
    for (&(path, name, _), _) in exceptions.iter().zip(&used).filter(|(_, used)| !**used) {
        let message = format!("`{name}` is not too long; remove its entry in tests/tidy/size.rs");
        findings.push(Finding { path: path.to_owned(), line: 1, message });
    }
    findings
}

/// Files have at most 400 lines, or what their entry in `exceptions` says.
pub fn files(tree: &Tree, exceptions: &[(&str, usize)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust("") {
        let lines = file.text.lines().count();
        let entry = exceptions.iter().find(|entry| entry.0 == file.path);
        let most = entry.map_or(MOST_LINES_OF_A_FILE, |entry| entry.1);
        if lines > most {
            let message = format!("{lines} lines, {most} are allowed; split it by ideas");
            findings.push(Finding { path: file.path.clone(), line: lines, message });
        } else if entry.is_some() && lines <= MOST_LINES_OF_A_FILE {
            let message = "is not too long; remove its entry in tests/tidy/size.rs".to_owned();
            findings.push(Finding { path: file.path.clone(), line: 1, message });
        }
    }
    for (path, _) in exceptions.iter().filter(|entry| tree.file(entry.0).is_none()) {
        let message = "does not exist; remove its entry in tests/tidy/size.rs".to_owned();
        findings.push(Finding { path: (*path).to_owned(), line: 1, message });
    }
    findings
}

/// Place, name and number of lines of each function with a body.
fn function_lengths(file: &Source) -> Vec<(usize, &str, usize)> {
    let code = &file.code;
    let mut lengths = Vec::new();
    for at in file.words("fn") {
        let name = identifier(code[at + 2..].trim_start());
        if name.is_empty() {
            continue; // the type of a function pointer
        }
        if let Some(open) = body(code, at) {
            let end = super::source::close(code, open);
            lengths.push((at, name, code[at..end].matches('\n').count() + 1));
        }
    }
    lengths
}

/// Where the body of the function at `at` opens; none where it is only declared.
fn body(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (offset, byte) in code[at..].bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(at + offset),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}(a: [u8; 3]) {{\n{}}}\n", "    x(\"}\"); // }\n".repeat(lines - 2))
    }

    #[test]
    fn long_functions_are_found_and_short_ones_are_not() {
        let text = format!("fn declared();\n{}{}", function("short", 70), function("long", 71));
        let tree = Tree::of(&[("src/a.rs", &text)]);
        let found = functions(&tree, &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 72);
        assert!(found[0].message.starts_with("`long` has 71 lines"));
        assert_eq!(functions(&tree, &[("src/a.rs", "long", 71)]), []);
    }

    #[test]
    fn exceptions_for_functions_may_only_shrink() {
        let text = function("long", 80);
        let tree = Tree::of(&[("src/a.rs", &text)]);
        assert_eq!(functions(&tree, &[("src/a.rs", "long", 79)]).len(), 1);
        let unneeded = [("src/a.rs", "long", 80), ("src/a.rs", "gone", 80)];
        assert!(functions(&tree, &unneeded)[0].message.contains("`gone` is not too long"));
    }

    #[test]
    fn long_files_and_unneeded_exceptions_are_found() {
        let (long, short) = ("\n".repeat(401), "\n".repeat(400));
        let tree = Tree::of(&[("src/a.rs", &long), ("src/b.rs", &short)]);
        let paths = |exceptions| -> Vec<String> {
            files(&tree, exceptions).into_iter().map(|finding| finding.path).collect()
        };
        assert_eq!(paths(&[]), ["src/a.rs"]);
        assert_eq!(paths(&[("src/a.rs", 401)]), Vec::<String>::new());
        assert_eq!(paths(&[("src/a.rs", 401), ("src/b.rs", 500)]), ["src/b.rs"]);
        assert_eq!(paths(&[("src/a.rs", 401), ("src/gone.rs", 500)]), ["src/gone.rs"]);
    }
}

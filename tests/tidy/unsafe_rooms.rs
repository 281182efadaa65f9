//! Unsafe code: where it may be, and that each piece of it is argued.

use super::source::{Finding, Source, Tree};

/// The files that may hold unsafe code.
pub const ROOMS: &[&str] = &[
    "backends/cpu/src/attention.rs",
    "backends/cpu/src/attention_backward.rs",
    "backends/cpu/src/attention_blocks.rs",
    "backends/cpu/src/bias_activation.rs",
    "backends/cpu/src/blocks.rs",
    "backends/cpu/src/buffer.rs",
    "backends/cpu/src/column_sums.rs",
    "backends/cpu/src/copy.rs",
    "backends/cpu/src/dropout.rs",
    "backends/cpu/src/index.rs",
    "backends/cpu/src/loss.rs",
    "backends/cpu/src/map.rs",
    "backends/cpu/src/matmul.rs",
    "backends/cpu/src/norm.rs",
    "backends/cpu/src/operands.rs",
    "backends/cpu/src/optim.rs",
    "backends/cpu/src/pool.rs",
    "backends/cpu/src/products.rs",
    "backends/cpu/src/reduce.rs",
    "backends/cpu/src/rotary.rs",
    "backends/cpu/src/rows.rs",
    "backends/cpu/src/shared.rs",
    "backends/cpu/src/simd.rs",
    "backends/cpu/src/softmax.rs",
    "backends/cpu/src/sums.rs",
];

/// Crate roots that must forbid unsafe code.
const SAFE_CRATES: &[&str] =
    &["src/lib.rs", "src/bin/sneppx/main.rs", "backends/contract/src/lib.rs"];

/// How many lines above an unsafe block its `SAFETY` comment may begin.
const REACH: usize = 12;

/// Unsafe code stands in `rooms` only, each of them in `backends/` and in need of its entry, and
/// every unsafe block and impl has a comment that says why it is sound.
pub fn fenced(tree: &Tree, rooms: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust("") {
        let is_room = file.path.starts_with("backends/") && rooms.contains(&file.path.as_str());
        for at in file.words("unsafe") {
            if !is_room {
                let message = "unsafe code outside its rooms; use the safe interface of \
                               backends/, or argue for a new room in tests/tidy/unsafe_rooms.rs";
                findings.push(file.finding(at, message));
            } else if opens_a_duty(file, at) && !is_argued(file, at) {
                let message = "unsafe without an argument; say in a `// SAFETY:` comment above \
                               which invariant makes it sound and who upholds it";
                findings.push(file.finding(at, message));
            }
        }
    }
    for room in rooms {
        let used = tree.file(room).is_some_and(|file| file.words("unsafe").next().is_some());
        if !used {
            let message = "holds no unsafe code; remove its entry in tests/tidy/unsafe_rooms.rs";
            findings.push(Finding { path: (*room).to_owned(), line: 1, message: message.into() });
        }
    }
    findings
}

/// Whether the `unsafe` at `at` is a block or an impl; an `unsafe fn` leaves the duty to callers.
fn opens_a_duty(file: &Source, at: usize) -> bool {
    let behind = file.code[at + "unsafe".len()..].trim_start();
    behind.starts_with('{') || behind.starts_with("impl")
}

fn is_argued(file: &Source, at: usize) -> bool {
    let line = file.line(at);
    let above = file.text.lines().take(line).skip(line.saturating_sub(REACH + 1));
    above.into_iter().any(|line| line.contains("SAFETY:"))
}

/// The crates that need no unsafe code forbid it.
pub fn forbidden_in_safe_crates(tree: &Tree) -> Vec<Finding> {
    let forbids = |path: &str| {
        tree.file(path).is_some_and(|file| file.code.contains("#![forbid(unsafe_code)]"))
    };
    let missing = SAFE_CRATES.iter().filter(|path| !forbids(path));
    missing
        .map(|path| Finding {
            path: (*path).to_owned(),
            line: 1,
            message: "has no `#![forbid(unsafe_code)]`; add it below the module documentation"
                .into(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: &str = "backends/cpu/src/pool.rs";

    fn lines(path: &str, text: &str, rooms: &[&str]) -> Vec<usize> {
        fenced(&Tree::of(&[(path, text)]), rooms).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn unsafe_code_outside_its_rooms_is_found() {
        assert_eq!(lines("src/nn.rs", "\nfn f() { unsafe { g() } }", &[]), [2]);
        assert_eq!(lines("src/nn.rs", "// SAFETY: x\nunsafe {}", &["src/nn.rs"]), [2]);
        assert_eq!(lines("src/nn.rs", "// unsafe\n#![forbid(unsafe_code)] \"unsafe\"", &[]), []);
    }

    #[test]
    fn unsafe_code_without_an_argument_is_found() {
        assert_eq!(lines(ROOM, "fn f() {\n    unsafe { g() }\n}", &[ROOM]), [2]);
        assert_eq!(lines(ROOM, "unsafe impl Send for X {}", &[ROOM]), [1]);
        assert_eq!(lines(ROOM, "// SAFETY: owned by f.\nunsafe { g() }", &[ROOM]), []);
        assert_eq!(lines(ROOM, "/// # Safety\n/// x\nunsafe fn g() {}", &[ROOM]), []);
    }

    #[test]
    fn a_room_without_unsafe_code_is_found() {
        assert_eq!(lines(ROOM, "fn f() {}", &[ROOM]), [1]);
        assert_eq!(lines("src/nn.rs", "fn f() {}", &[ROOM]), [1]);
    }

    #[test]
    fn a_safe_crate_that_forbids_nothing_is_found() {
        let forbid = "#![forbid(unsafe_code)]";
        let good: Vec<(&str, &str)> = SAFE_CRATES.iter().map(|path| (*path, forbid)).collect();
        assert_eq!(forbidden_in_safe_crates(&Tree::of(&good)), []);
        let bad =
            [good[0], (SAFE_CRATES[1], forbid), (SAFE_CRATES[2], "// #![forbid(unsafe_code)]")];
        assert_eq!(forbidden_in_safe_crates(&Tree::of(&bad)).len(), 1);
    }
}

//! Imports inside `src/` run one way.
//!
//! A room is a module of the crate root. A file may name its own room and those to its left. The
//! room `backend` stands beside them: it may name any, and none may name it. What `src/lib.rs`
//! re-exports counts as the room it comes from.

use std::collections::HashMap;

use super::borders::BACKEND_CRATES;
use super::source::{Finding, Source, Tree, close, identifier};

/// The rooms from left to right.
pub const ORDER: &[&str] = &[
    "contract",
    "error",
    "launch",
    "data",
    "tensor",
    "autograd",
    "nn",
    "optim",
    "shard",
    "checkpoint",
    "train",
];

/// Files of `src/` name only rooms at or to the left of their own.
pub fn point_left(tree: &Tree, order: &[&str]) -> Vec<Finding> {
    let exports = exports(tree);
    let place = |room: &str| order.iter().position(|known| *known == room);
    let mut findings = Vec::new();
    for (file, room) in files_with_rooms(tree) {
        findings.extend(climbs_to_the_root(file));
        let Some(own) = place(room) else {
            let message = format!("room `{room}` has no place in the order; add it there");
            findings.push(file.finding(0, message));
            continue;
        };
        for (at, name) in root_names(file) {
            let target = exports.get(name).map_or(name, String::as_str);
            match place(target) {
                Some(other) if other <= own => {}
                Some(_) => findings.push(file.finding(
                    at,
                    format!(
                        "`{room}` imports `{target}`, which is to its right; move the item left \
                         or declare a trait here that `{target}` implements"
                    ),
                )),
                None if target == "backend" => {}
                None => findings.push(file.finding(
                    at,
                    format!("`crate::{name}` is not a room; name the module that defines it"),
                )),
            }
        }
    }
    findings
}

/// No file of `src/` but the root and the program names `backend` or what it exports.
pub fn backend_is_imported_by_nobody(tree: &Tree) -> Vec<Finding> {
    let exports = exports(tree);
    let mut findings = Vec::new();
    for (file, _) in files_with_rooms(tree) {
        for (at, name) in root_names(file) {
            if name == "backend" || exports.get(name).is_some_and(|room| room == "backend") {
                let message = "only programs choose a backend; take `D: Device` as a parameter";
                findings.push(file.finding(at, message));
            }
        }
    }
    findings
}

/// The library's files with their rooms; `lib.rs`, `backend.rs` and programs have none.
fn files_with_rooms(tree: &Tree) -> impl Iterator<Item = (&Source, &str)> {
    tree.rust("src/").filter_map(|file| {
        let inside = file.path.strip_prefix("src/")?.strip_suffix(".rs")?;
        let room = inside.split('/').next()?;
        (!matches!(room, "lib" | "bin" | "backend" | "main")).then_some((file, room))
    })
}

/// The names that follow `crate::` or `sneppx::` in `file`, with their places.
fn root_names(file: &Source) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    for root in ["crate", "sneppx"] {
        for at in file.words(root) {
            let Some(rest) = file.code[at + root.len()..].strip_prefix("::") else { continue };
            names.extend(branches(rest).into_iter().map(|name| (at, name)));
        }
    }
    names
}

/// The first segments of the path or use group at the start of `code`.
fn branches(code: &str) -> Vec<&str> {
    let Some(group) = code.strip_prefix('{') else {
        return vec![identifier(code)];
    };
    let mut names = Vec::new();
    let (mut depth, mut at_start) = (0usize, true);
    for (at, c) in group[..close(code, 0).saturating_sub(2)].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            c if at_start && !c.is_whitespace() => {
                names.push(identifier(&group[at..]));
                at_start = false;
            }
            _ => {}
        }
    }
    names
}

/// Names that `src/lib.rs` brings to the root, and the room each comes from: re-exports, and files
/// of a room that are declared there by their path. Backend crates count as `backend`, other
/// foreign crates as `contract`, which every room may name.
fn exports(tree: &Tree) -> HashMap<String, String> {
    let mut exports = HashMap::new();
    let Some(root) = tree.file("src/lib.rs") else { return exports };
    let modules: Vec<&str> = root.words("mod").map(|at| identifier(&root.code[at + 4..])).collect();
    for (at, name) in root.words("mod").zip(&modules) {
        if let Some(room) = room_by_path(&root.text[..at]) {
            exports.insert((*name).to_owned(), room.to_owned());
        }
    }
    for at in root.words("use") {
        let statement = root.code[at + 3..].split(';').next().unwrap_or_default().trim();
        let statement = statement.trim_start_matches("self::").trim_start_matches("crate::");
        let first = identifier(statement);
        let room = match first {
            _ if modules.contains(&first) => first,
            _ if BACKEND_CRATES.contains(&first) => "backend",
            _ => "contract",
        };
        for leaf in statement.split(['{', '}', ',']) {
            let named = leaf.rsplit([' ', ':', '\n']).next().unwrap_or_default();
            if !named.is_empty() && !modules.contains(&named) {
                exports.insert(named.to_owned(), room.to_owned());
            }
        }
    }
    exports
}

/// The folder in the `#[path]` attribute that ends `text`, if there is one.
fn room_by_path(text: &str) -> Option<&str> {
    let attribute = text.trim_end().trim_end_matches("pub").trim_end().strip_suffix("\"]")?;
    let (_, path) = attribute.rsplit_once("#[path = \"")?;
    path.split('/').next()
}

/// Chains of `super` that end at the crate root, where the order could not be seen.
fn climbs_to_the_root(file: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in file.words("super") {
        let code = &file.code;
        if code[..at].ends_with("super::") {
            continue;
        }
        let mut rest = &code[at..];
        let mut climbed = 0;
        while let Some(behind) = rest.strip_prefix("super") {
            climbed += 1;
            rest = behind.strip_prefix("::").unwrap_or(behind);
        }
        let grouped = code[..at].trim_end().ends_with(['{', ','])
            && code[..at].rfind("super::{").is_some_and(|open| close(code, open + 7) > at);
        if climbed >= depth(file, at) || grouped {
            findings.push(file.finding(at, "leaves its room by `super`; write `crate::` instead"));
        }
    }
    findings
}

/// How many modules below the crate root the code at byte `at` lies.
fn depth(file: &Source, at: usize) -> usize {
    let inside = file.path.trim_start_matches("src/").trim_end_matches(".rs");
    let by_file = inside.split('/').filter(|part| *part != "mod").count();
    let by_block = file.words("mod").take_while(|&start| start < at).filter(|&start| {
        let header = file.code[start..].find(['{', ';']).map(|length| start + length);
        header.is_some_and(|open| {
            file.code[open..].starts_with('{') && open < at && close(&file.code, open) > at
        })
    });
    by_file + by_block.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: (&str, &str) = (
        "src/lib.rs",
        "pub mod data;\npub mod tensor;\npub mod nn;\npub mod backend;\n\
         pub use backend::Selected;\npub use nn::{Linear, Gpt as Model};\n\
         pub use sneppx_contract::{DType, Result};\n\
         pub use sneppx_cpu as cpu;\n\
         #[cfg(x)]\n#[path = \"nn/absent.rs\"]\nmod door;",
    );

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[ROOT, (path, text)]);
        point_left(&tree, ORDER).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn imports_to_the_left_pass() {
        let text = "use crate::data::Loader;\nuse crate::{DType, tensor::{Tensor, View}};\n\
                    // crate::train\nfn f() -> crate::Result<()> {\n\
                    super::block::run(\"crate::nn\") }";
        assert_eq!(lines("src/tensor/ops.rs", text), []);
    }

    #[test]
    fn imports_to_the_right_are_found_in_every_spelling() {
        assert_eq!(lines("src/data/mod.rs", "\nuse crate::nn::Linear;"), [2]);
        assert_eq!(lines("src/data.rs", "use crate::{error,\n tensor::Tensor};"), [1]);
        assert_eq!(lines("src/data/a.rs", "fn f() {\n sneppx::tensor::make() }"), [2]);
        assert_eq!(lines("src/data/a.rs", "use crate::Model;"), [1]);
        assert_eq!(lines("src/data/a.rs", "use crate::{DType, Linear};"), [1]);
        assert_eq!(lines("src/data/a.rs", "use crate::door::open;"), [1]);
        assert_eq!(lines("src/nn/a.rs", "use crate::door::open;"), []);
    }

    #[test]
    fn unknown_rooms_and_names_are_found() {
        assert_eq!(lines("src/attic.rs", "fn f() {}"), [1]);
        assert_eq!(lines("src/data.rs", "use crate::attic::Chest;"), [1]);
    }

    #[test]
    fn super_may_not_leave_the_room() {
        assert_eq!(lines("src/nn/block.rs", "use super::super::train::Step;"), [1]);
        assert_eq!(lines("src/nn/block.rs", "use super::{super::train::Step, Gpt};"), [1]);
        assert_eq!(lines("src/nn/mod.rs", "use super::tensor;"), [1]);
        assert_eq!(lines("src/nn.rs", "mod tests { use super::Gpt; }"), []);
        assert_eq!(lines("src/nn.rs", "mod tests { use super::super::train; }"), [1]);
        assert_eq!(lines("src/nn/a/b.rs", "use super::super::Gpt;"), []);
    }

    #[test]
    fn the_backend_module_is_seen_through_its_re_exports() {
        let found = |path, text| backend_is_imported_by_nobody(&Tree::of(&[ROOT, (path, text)]));
        assert_eq!(found("src/nn/a.rs", "use crate::backend::open;").len(), 1);
        assert_eq!(found("src/nn/a.rs", "use crate::{Linear, Selected};").len(), 1);
        assert_eq!(found("src/nn/a.rs", "use crate::cpu::Cpu;").len(), 1);
        assert_eq!(found("src/nn/a.rs", "let backend = crate::nn::x();").len(), 0);
        assert_eq!(found("src/bin/sneppx/main.rs", "use sneppx::backend::open;").len(), 0);
    }
}

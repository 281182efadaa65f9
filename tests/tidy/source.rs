//! Source files as the rules see them: the text, the code without comments and literals, and the
//! string literals alone.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path relative to the root of the repository.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// One text file.
pub struct Source {
    /// Path relative to the root of the repository, with `/`.
    pub path: String,
    /// The file as it is.
    pub text: String,
    /// Rust only: the text with comments and the insides of literals blanked, byte for byte, so
    /// that places and lines stay where they are.
    pub code: String,
    /// Rust only: the string literals, escapes unresolved.
    pub strings: Vec<String>,
}

impl Source {
    /// A file of the given content.
    pub fn new(path: &str, text: &str) -> Source {
        let is_rust = path.ends_with(".rs");
        let (code, strings) = if is_rust { Lexer::run(text) } else { Default::default() };
        Source { path: path.to_owned(), text: text.to_owned(), code, strings }
    }

    /// The line of byte `at`, from 1.
    pub fn line(&self, at: usize) -> usize {
        1 + self.text[..at].matches('\n').count()
    }

    /// A finding at byte `at`.
    pub fn finding(&self, at: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line: self.line(at), message: message.into() }
    }

    /// Where `word` stands in the code as a word of its own.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        words(&self.code, word)
    }
}

/// Where `word` stands in `code` as a word of its own.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Whether `c` may be part of an identifier.
pub fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The identifier at the start of `code`, possibly empty.
pub fn identifier(code: &str) -> &str {
    &code[..code.find(|c| !is_word(c)).unwrap_or(code.len())]
}

/// The byte behind the bracket that closes the one at `open`, or the end of the code.
pub fn close(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// All text files of a source tree.
pub struct Tree {
    /// In order of their paths.
    pub files: Vec<Source>,
}

impl Tree {
    /// A tree made of the given (path, text) pairs.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        Tree { files: files.iter().map(|(path, text)| Source::new(path, text)).collect() }
    }

    /// Every text file of this repository but build outputs.
    pub fn of_the_repository() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let ignore = fs::read_to_string(root.join(".gitignore")).expect(".gitignore is readable");
        let ignored: Vec<&str> = ignore.lines().filter_map(|line| line.strip_suffix('/')).collect();
        let mut paths = Vec::new();
        walk(root, &ignored, &mut paths);
        paths.sort();
        let files: Vec<Source> = paths
            .iter()
            .filter_map(|path| {
                // A file that is not UTF-8 is data, not text.
                let text = String::from_utf8(fs::read(path).ok()?).ok()?;
                let relative = path.strip_prefix(root).expect("the walk stays below the root");
                Some(Source::new(&relative.to_str()?.replace('\\', "/"), &text))
            })
            .collect();
        assert!(files.iter().any(|file| file.path == "src/lib.rs"), "no src/lib.rs below {root:?}");
        Tree { files }
    }

    /// The file at `path`.
    pub fn file(&self, path: &str) -> Option<&Source> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The Rust files whose path starts with `prefix`.
    pub fn rust<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Source> {
        self.files.iter().filter(move |f| f.path.starts_with(prefix) && f.path.ends_with(".rs"))
    }
}

fn walk(folder: &Path, ignored: &[&str], paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for entry in entries {
        let path = entry.expect("a readable folder entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if [".git", "__pycache__"].contains(&name) || ignored.contains(&name) {
            continue;
        }
        if path.is_dir() {
            walk(&path, ignored, paths);
        } else {
            paths.push(path);
        }
    }
}

/// Splits Rust text into code and literals.
struct Lexer<'a> {
    text: &'a str,
    at: usize,
    code: Vec<u8>,
    strings: Vec<String>,
}

impl Lexer<'_> {
    fn run(text: &str) -> (String, Vec<String>) {
        let mut lexer = Lexer { text, at: 0, code: text.as_bytes().to_vec(), strings: Vec::new() };
        while lexer.at < text.len() {
            lexer.item();
        }
        (String::from_utf8(lexer.code).expect("whole literals are blanked"), lexer.strings)
    }

    /// Steps over one comment, literal, word or character.
    fn item(&mut self) {
        let rest = &self.text[self.at..];
        let first = rest.chars().next().expect("the lexer stops at the end");
        if rest.starts_with("//") {
            self.blank(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.blank(block_comment(rest));
        } else if first == '"' {
            self.string(1, 0, true);
        } else if first == '\'' {
            match character(rest) {
                Some(len) => self.blank(len),
                None => self.at += 1,
            }
        } else if is_word(first) {
            self.word(identifier(rest).len());
        } else {
            self.at += first.len_utf8();
        }
    }

    /// Steps over a word; `r`, `b`, `c` and their pairs may be the prefix of a literal.
    fn word(&mut self, len: usize) {
        let prefix = &self.text[self.at..self.at + len];
        let rest = &self.text[self.at + len..];
        let hashes = rest.len() - rest.trim_start_matches('#').len();
        let quoted = rest[hashes..].starts_with('"');
        if matches!(prefix, "r" | "br" | "cr") && quoted {
            self.string(len + hashes + 1, hashes, false);
        } else if matches!(prefix, "b" | "c") && quoted && hashes == 0 {
            self.string(len + 1, 0, true);
        } else {
            self.at += len;
        }
    }

    /// Steps over a string that opens with `open` bytes and closes with `hashes` hashes.
    fn string(&mut self, open: usize, hashes: usize, escapes: bool) {
        let body = &self.text[self.at + open..];
        let end = format!("\"{}", "#".repeat(hashes));
        let mut len = 0;
        while len < body.len() && !body[len..].starts_with(&end) {
            let escaped = escapes && body[len..].starts_with('\\');
            let step = |at: usize| body[at..].chars().next().map_or(0, char::len_utf8);
            len += step(len);
            if escaped {
                len += step(len);
            }
        }
        self.strings.push(body[..len].to_owned());
        self.at += open;
        self.blank(len);
        self.at = (self.at + end.len()).min(self.text.len());
    }

    /// Overwrites `len` bytes with spaces, line ends excepted.
    fn blank(&mut self, len: usize) {
        for byte in &mut self.code[self.at..self.at + len] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        self.at += len;
    }
}

/// The length of the block comment at the start of `text`; such comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the character literal at the start of `text`; none where it is a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return chars.find(|&(_, c)| c == '\'').map(|(at, _)| at + 1);
    }
    chars.next().filter(|&(_, c)| c == '\'').map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        let text =
            "let a = \"un\\\"safe\"; // unsafe\nlet b: &'a str = r#\"x\"y\"#; /* /* */ é */ 'q'";
        let source = Source::new("a.rs", text);
        assert_eq!(source.code.len(), text.len());
        assert_eq!(source.strings, ["un\\\"safe", "x\"y"]);
        assert_eq!(
            source.code.trim_end(),
            "let a = \"        \";          \nlet b: &'a str = r#\"   \"#;"
        );
        assert_eq!(source.words("b").map(|at| source.line(at)).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn character_literals_are_told_from_lifetimes() {
        let lengths = ["'a'", "'\\''", "'\\u{1F}'", "'é'", "'a, 'b", "'static"].map(character);
        assert_eq!(lengths, [Some(3), Some(4), Some(8), Some(4), None, None]);
    }

    #[test]
    fn words_are_whole_and_brackets_close() {
        let code = "unsafe_code unsafe { a[{1}] } is_unsafe";
        assert_eq!(words(code, "unsafe").collect::<Vec<_>>(), [12]);
        assert_eq!(&code[19..close(code, 19)], "{ a[{1}] }");
    }
}

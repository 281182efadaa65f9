//! Text from files and folders.

use std::path::{Path, PathBuf};

use sneppx_contract::{Error, Result};

use super::tokens::split_point;

/// Reads the text of all `paths`, one after the other, as one text.
///
/// A folder stands for every file in it and below it, in the order of their paths, so that the
/// text does not depend on the file system. Files whose name begins with a dot are left out.
///
/// # Errors
/// A path that is missing or cannot be read, a folder without files, a file that is not UTF-8
/// (with the byte where it stops being so), or no text at all. All name the path.
pub fn load_text<P: AsRef<Path>>(paths: &[P]) -> Result<String> {
    let Some(first) = paths.first() else {
        return Err(Error::invalid("data", "[]", "give at least one text file or folder"));
    };
    let mut text = String::new();
    for path in paths {
        for file in text_files(path.as_ref())? {
            let bytes = std::fs::read(&file).map_err(|error| Error::file(&file, error))?;
            text.push_str(utf8(&file, &bytes)?);
        }
    }
    if text.is_empty() {
        return Err(Error::file(first, "no text: every file is empty"));
    }
    Ok(text)
}

/// The files that `path` stands for: itself, or what is in the folder, sorted by path.
///
/// # Errors
/// A path that is missing or cannot be read, or a folder without files.
pub fn text_files(path: &Path) -> Result<Vec<PathBuf>> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::file(path, error))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    // Folders still to be read; a loop, because a tree can be deeper than the stack.
    let mut folders = vec![path.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| Error::file(&folder, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| Error::file(&folder, error))?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let kind = entry.file_type().map_err(|error| Error::file(entry.path(), error))?;
            // Links to folders are not followed: they could lead round in a circle.
            if kind.is_dir() {
                folders.push(entry.path());
            } else if entry.path().is_file() {
                files.push(entry.path());
            }
        }
    }
    if files.is_empty() {
        return Err(Error::file(path, "the folder has no files to read"));
    }
    files.sort_unstable();
    Ok(files)
}

/// Cuts off the last `fraction` of the characters for validation: (train, validation). With 0.1
/// this is the split of nanoGPT's Shakespeare recipe.
///
/// # Errors
/// A fraction outside `0..1`.
pub fn split_text(text: &str, fraction: f64) -> Result<(&str, &str)> {
    let cut = split_point(text.chars().count(), fraction)?;
    let offset = text.char_indices().nth(cut).map_or(text.len(), |(offset, _)| offset);
    Ok(text.split_at(offset))
}

fn utf8<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        let detail = format!(
            "not UTF-8: byte {offset} is 0x{:02X}; convert the file to UTF-8",
            bytes[offset]
        );
        Error::file(path, detail)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn folders_are_read_in_sorted_order_and_recursively() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/deep")).unwrap();
        for (name, text) in [("c.txt", "3"), ("b/deep/z", "2"), ("a.txt", "1"), (".hidden", "0")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(load_text(&[dir.path()]).unwrap(), "123");
        let paths = [dir.path().join("c.txt"), dir.path().join("a.txt")];
        assert_eq!(load_text(&paths).unwrap(), "31");
    }

    #[test]
    fn text_that_is_not_utf8_is_named_with_path_and_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("latin1.txt");
        fs::write(&path, b"abc\xE9def").unwrap();
        let message = load_text(&[&path]).unwrap_err().to_string();
        assert!(message.contains("latin1.txt") && message.contains("byte 3"), "{message}");
        assert!(message.contains("0xE9"), "{message}");
    }

    #[test]
    fn missing_empty_and_absent_texts_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let message = load_text(&[dir.path()]).unwrap_err().to_string();
        assert!(message.contains("no files"), "{message}");
        let missing = dir.path().join("missing.txt");
        let message = load_text(&[&missing]).unwrap_err().to_string();
        assert!(message.contains("missing.txt"), "{message}");
        let empty = dir.path().join("empty.txt");
        fs::write(&empty, "").unwrap();
        let message = load_text(&[&empty]).unwrap_err().to_string();
        assert!(message.contains("empty.txt") && message.contains("no text"), "{message}");
        assert!(load_text::<&Path>(&[]).is_err());
    }

    #[test]
    fn the_split_falls_between_characters() {
        let (train, validation) = split_text("äöüßabcdef", 0.1).unwrap();
        assert_eq!((train, validation), ("äöüßabcde", "f"));
        assert_eq!(split_text("äöü", 0.0).unwrap(), ("äöü", ""));
        assert!(split_text("abc", 1.0).is_err());
    }
}

//! Token files: what is written comes back, and what is not a token file is refused by name.

use std::fs;
use std::path::PathBuf;

use sneppx::data::{Dataset, RawTokens, TokenDataset, TokenFile, TokenFileWriter};
use sneppx::data::{TokenStore, TokenWidth};

fn written(dir: &tempfile::TempDir, vocab_size: usize, tokens: &[u32]) -> PathBuf {
    let path = dir.path().join("corpus.tokens");
    let mut writer = TokenFileWriter::create(&path, vocab_size).unwrap();
    for piece in tokens.chunks(7) {
        writer.append(piece).unwrap();
    }
    writer.finish().unwrap();
    path
}

/// The error of opening `path`, which must name the file.
fn refusal(path: &PathBuf) -> String {
    let text = TokenFile::open(path).unwrap_err().to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    text
}

#[test]
fn tokens_come_back_in_both_widths() {
    for (vocab_size, width) in [(65_536, TokenWidth::U16), (65_537, TokenWidth::U32)] {
        let dir = tempfile::tempdir().unwrap();
        let last = vocab_size as u32 - 1;
        let tokens: Vec<u32> = (0..100).map(|i| if i == 50 { last } else { i * 300 }).collect();
        let file = TokenFile::open(written(&dir, vocab_size, &tokens)).unwrap();
        assert_eq!((file.len(), file.vocab_size(), file.width()), (100, vocab_size, width));
        let mut back = vec![0; 60];
        file.read(40, &mut back).unwrap();
        assert_eq!(back, tokens[40..]);
        assert!(file.read(41, &mut back).is_err());
        file.verify().unwrap();
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "only the finished file is left: {left:?}");
    }
}

#[test]
fn damaged_files_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(&dir, 100, &[5; 40]);
    let whole = fs::read(&path).unwrap();
    let change = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        edit(&mut bytes);
        fs::write(&path, bytes).unwrap();
        &path
    };
    assert!(refusal(change(&|bytes| bytes.truncate(120))).contains("truncated"));
    assert!(refusal(change(&|bytes| bytes.truncate(50))).contains("truncated"));
    assert!(refusal(change(&|bytes| bytes.truncate(9))).contains("truncated"));
    assert!(refusal(change(&|bytes| bytes.clear())).contains("not a Sneppx token file"));
    assert!(refusal(change(&|bytes| bytes.push(0))).contains("too long"));
    assert!(refusal(change(&|bytes| bytes[0] = b'P')).contains("not a Sneppx token file"));
    assert!(refusal(change(&|bytes| bytes[8] = 2)).contains("version 2"));
    assert!(refusal(change(&|bytes| bytes[25] ^= 1)).contains("damaged"));
    let file = TokenFile::open(change(&|bytes| bytes[100] = 6)).unwrap();
    assert!(file.verify().unwrap_err().to_string().contains("damaged"));
    let file = TokenFile::open(change(&|bytes| bytes[101] = 1)).unwrap();
    let text = file.read(0, &mut [0; 10]).unwrap_err().to_string();
    assert!(text.contains("token 261 at position 2") && text.contains("100"), "{text}");
}

#[test]
fn missing_files_and_folders_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    refusal(&dir.path().join("absent.tokens"));
    assert!(refusal(&dir.path().to_path_buf()).contains("not a regular file"));
}

#[test]
fn an_unfinished_file_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("corpus.tokens");
    let mut writer = TokenFileWriter::create(&path, 10).unwrap();
    writer.append(&[1, 2, 3]).unwrap();
    let text = writer.append(&[4, 10]).unwrap_err().to_string();
    assert!(text.contains("token 10 at position 4"), "{text}");
    drop(writer);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    assert!(TokenFileWriter::create(&path, 0).is_err());
    assert!(TokenFileWriter::create(dir.path().join("no/such/folder"), 5).is_err());
}

#[test]
fn bare_tokens_are_read_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("train.bin");
    let format = RawTokens { width: TokenWidth::U16, vocab_size: 50_257 };
    fs::write(&path, [1, 0, 0x50, 0xC4, 7, 1]).unwrap();
    assert!(refusal(&path).contains("not a Sneppx token file"));
    let file = TokenFile::open_raw(&path, format).unwrap();
    let mut back = [0; 3];
    file.read(0, &mut back).unwrap();
    assert_eq!(back, [1, 50_256, 263]);
    fs::write(&path, [1, 0, 0x51, 0xC4]).unwrap();
    let file = TokenFile::open_raw(&path, format).unwrap();
    assert!(file.read(0, &mut back[..2]).unwrap_err().to_string().contains("50257"));
    fs::write(&path, [1, 0, 3]).unwrap();
    assert!(TokenFile::open_raw(&path, format).is_err());
    let proper = written(&dir, 100, &[5; 40]);
    assert!(TokenFile::open_raw(proper, format).unwrap_err().to_string().contains("header"));
}

#[test]
fn a_data_set_over_a_file_equals_one_over_memory() {
    let dir = tempfile::tempdir().unwrap();
    let tokens: Vec<u32> = (0..50u32).map(|i| i * i % 97).collect();
    let path = written(&dir, 97, &tokens);
    let mapped = TokenStore::mapped(TokenFile::open(&path).unwrap());
    let memory = TokenStore::in_memory("squares", tokens, 97).unwrap();
    let mapped = TokenDataset::new(mapped, 8).unwrap();
    let memory = TokenDataset::new(memory, 8).unwrap();
    assert_eq!(mapped.len(), 6);
    for index in 0..memory.len() {
        assert_eq!(mapped.get(index).unwrap(), memory.get(index).unwrap());
    }
}

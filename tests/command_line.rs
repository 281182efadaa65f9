//! The program as its users meet it: exit codes, messages, and what it leaves behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn sneppx(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sneppx"))
        .args(arguments)
        .current_dir(folder)
        .env("RAYON_NUM_THREADS", "2")
        .output()
        .expect("the program starts")
}

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec![
        "train",
        "--dim",
        "16",
        "--heads",
        "2",
        "--kv-heads",
        "2",
        "--layers",
        "1",
        "--ffn-dim",
        "32",
        "--seq-len",
        "16",
        "--steps",
        "4",
        "--global-batch",
        "4",
        "--micro-batch",
        "2",
        "--warmup",
        "1",
        "--eval-every",
        "2",
        "--eval-batches",
        "1",
    ];
    arguments.extend_from_slice(more);
    arguments
}

/// The run fails with exit code 1, says all of `parts`, and leaves no folder behind.
fn check_refused(arguments: &[&str], parts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty.txt"), "").unwrap();
    fs::write(folder.path().join("short.txt"), "brief").unwrap();
    fs::write(folder.path().join("some.txt"), "enough for a few sequences. ".repeat(3)).unwrap();
    fs::write(folder.path().join("bad.toml"), "stepz = 3\n").unwrap();
    fs::write(folder.path().join("type.toml"), "steps = \"many\"\n").unwrap();
    fs::write(folder.path().join("broken.toml"), "steps = = 3\n").unwrap();
    fs::write(folder.path().join("foreign.tokens"), "not a token file").unwrap();
    let output = sneppx(&small(arguments), folder.path());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
    for part in parts {
        assert!(errors.contains(part), "{arguments:?}: {part:?} is not in {errors}");
    }
    assert!(!errors.contains("panicked"), "{errors}");
    assert!(!folder.path().join("out").exists(), "{arguments:?} left a folder behind");
}

#[test]
fn a_run_leaves_weights_metrics_a_picture_and_its_settings() {
    let folder = tempfile::tempdir().unwrap();
    let output = sneppx(&small(&["--json"]), folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let summary: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    for key in [
        "preset",
        "device",
        "communicator",
        "world_size",
        "strategy",
        "precision",
        "threads",
        "params",
        "steps",
        "tokens",
        "train_loss",
        "val_loss",
        "loss_floor",
        "step_ms_median",
        "tokens_per_second",
        "gflops",
        "peak_bytes",
        "resident_peak_bytes",
        "state_sha256",
    ] {
        assert!(summary.get(key).is_some(), "{key} is missing in {summary}");
    }
    assert_eq!(summary["steps"], 4);
    assert_eq!(summary["tokens"], 4 * 4 * 16);
    let out = folder.path().join("out");
    let metrics = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    assert_eq!(metrics.lines().count(), 4 + 2, "{metrics}");
    assert!(fs::read_to_string(out.join("loss.svg")).unwrap().contains("nats per token"));
    for name in ["run.toml", "model.safetensors", "model.json", "tokenizer.json"] {
        assert!(out.join(name).exists(), "{name}");
    }
}

#[test]
fn run_toml_repeats_a_run_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let hash = |arguments: &[&str]| {
        let output = sneppx(arguments, folder.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let stdout = String::from_utf8(output.stdout).unwrap();
        let line: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
        line["state_sha256"].as_str().unwrap().to_owned()
    };
    let first = hash(&small(&["--json", "--seed", "5", "--dropout", "0.1"]));
    let config = folder.path().join("out/run.toml");
    let config = config.to_str().unwrap();
    let second = hash(&["train", "--config", config, "--json", "--out", "again"]);
    assert_eq!(first, second);
    let threads = hash(&["train", "--config", config, "--json", "--threads", "1"]);
    assert_eq!(first, threads, "one thread and two give different bits");
    let recompute = hash(&["train", "--config", config, "--json", "--recompute"]);
    assert_eq!(first, recompute, "recomputing changes the bits");
    let other = hash(&["train", "--config", config, "--json", "--seed", "6"]);
    assert_ne!(first, other);
}

#[test]
fn generate_continues_a_text_and_repeats_itself_for_one_seed() {
    let folder = tempfile::tempdir().unwrap();
    let text = "to be or not to be, that is the question. ".repeat(30);
    fs::write(folder.path().join("text.txt"), text).unwrap();
    let trained = small(&["--data", "text.txt", "--tokenizer", "chars"]);
    let output = sneppx(&trained, folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let generate = |seed: &str| {
        let arguments = [
            "generate",
            "--checkpoint",
            "out",
            "--prompt",
            "to be",
            "--tokens",
            "40",
            "--seed",
            seed,
        ];
        let output = sneppx(&arguments, folder.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let first = generate("1");
    assert!(first.starts_with("to be"), "{first}");
    assert_eq!(first.trim_end_matches('\n').chars().count(), 45, "{first:?}");
    assert_eq!(first, generate("1"));
    assert_ne!(first, generate("2"));
    let unknown = ["generate", "--checkpoint", "out", "--prompt", "\u{1F980}"];
    let output = sneppx(&unknown, folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains('\u{1F980}'));
}

#[test]
fn prepared_tokens_train_like_the_text_they_came_from() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text.txt"), "abc abd abe ".repeat(200)).unwrap();
    let prepare = ["prepare", "--data", "text.txt", "--tokenizer", "chars", "--out", "text.tokens"];
    let output = sneppx(&prepare, folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let hash = |arguments: &[&str]| {
        let output = sneppx(&small(arguments), folder.path());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let stdout = String::from_utf8(output.stdout).unwrap();
        let line: serde_json::Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
        line["state_sha256"].as_str().unwrap().to_owned()
    };
    let from_text = hash(&["--data", "text.txt", "--tokenizer", "chars", "--json"]);
    let from_tokens = hash(&["--data", "text.tokens", "--json", "--out", "other"]);
    assert_eq!(from_text, from_tokens);
    let mut bytes = fs::read(folder.path().join("text.tokens")).unwrap();
    bytes.pop();
    fs::write(folder.path().join("text.tokens"), bytes).unwrap();
    let output = sneppx(&small(&["--data", "text.tokens"]), folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("text.tokens"));
}

#[test]
fn data_that_cannot_be_used_is_named() {
    check_refused(&["--data", "missing.txt"], &["missing.txt"]);
    check_refused(&["--data", "empty.txt"], &["empty.txt"]);
    check_refused(&["--data", "short.txt"], &["16", "5"]);
    check_refused(&["--data", "foreign.tokens"], &["foreign.tokens"]);
    check_refused(&["--data", "short.txt", "--tokenizer", "nowhere.json"], &["nowhere.json"]);
    check_refused(&["--preset", "shakespeare-char"], &["--data"]);
}

#[test]
fn settings_that_cannot_be_used_are_named_with_their_values() {
    check_refused(&["--steps", "0"], &["steps = 0"]);
    check_refused(&["--heads", "3"], &["num_heads = 3", "16"]);
    check_refused(&["--kv-heads", "3"], &["num_kv_heads = 3", "2"]);
    check_refused(&["--micro-batch", "3"], &["micro-batch = 3", "4"]);
    check_refused(&["--micro-batch", "0"], &["micro-batch = 0"]);
    check_refused(&["--global-batch", "0"], &["global-batch = 0"]);
    check_refused(&["--dropout", "1.5"], &["dropout = 1.5"]);
    check_refused(&["--lr", "NaN"], &["NaN"]);
    check_refused(&["--lr=-1"], &["-1"]);
    check_refused(&["--clip", "NaN"], &["clip = NaN"]);
    check_refused(&["--warmup", "9"], &["9", "4"]);
    check_refused(&["--schedule", "spiral"], &["schedule", "spiral"]);
    check_refused(&["--precision", "f8"], &["precision", "f8"]);
    check_refused(&["--preset", "huge"], &["preset = huge", "quick"]);
    check_refused(&["--config", "bad.toml"], &["stepz", "bad.toml"]);
    check_refused(&["--config", "type.toml"], &["steps", "type.toml"]);
    check_refused(&["--config", "broken.toml"], &["broken.toml"]);
    check_refused(&["--config", "nowhere.toml"], &["nowhere.toml"]);
    check_refused(
        &["--data", "some.txt", "--validation-fraction", "0", "--global-batch", "128"],
        &["128"],
    );
}

#[test]
fn usage_errors_have_exit_code_two() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["train", "--stepz", "3"][..], &["fly"], &[], &["train", "--steps", "x"]] {
        let output = sneppx(arguments, folder.path());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn an_output_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("taken"), "a file").unwrap();
    let output = sneppx(&small(&["--out", "taken/inside"]), folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("taken/inside"));
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_weights() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = small(&["--lr", "1e30", "--warmup", "0", "--clip", "0", "--steps", "50"]);
    let output = sneppx(&arguments, folder.path());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("at step "), "{errors}");
    let bytes = fs::read(folder.path().join("out/model.safetensors")).unwrap();
    let weights = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for (name, tensor) in weights.tensors() {
        for value in tensor.data().chunks(4) {
            let value = f32::from_le_bytes(value.try_into().unwrap());
            assert!(value.is_finite(), "{name} holds {value}");
        }
    }
}

#[test]
fn several_ranks_are_refused_where_no_communicator_serves_them() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sneppx"))
        .args(small(&[]))
        .current_dir(folder.path())
        .env("WORLD_SIZE", "2")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("WORLD_SIZE = 2"));
}

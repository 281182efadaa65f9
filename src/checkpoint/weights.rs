//! The weights of a model as one safetensors file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, View};
use sneppx_contract::{DType, Device, Error, HostVec, Result};

use crate::nn::Module;
use crate::tensor::Tensor;

/// Writes every parameter of `model` to `path`, whole or not at all: the bytes go to a temporary
/// file in the same folder, reach the disk, and take the name last.
///
/// # Errors
/// The file cannot be written; the message has the path and the cause.
pub fn save_weights<D: Device>(model: &dyn Module<D>, path: &Path) -> Result<()> {
    let mut entries = Vec::new();
    for (name, param) in model.named_parameters() {
        let values = param.leaf().value()?.to_host()?;
        let shape = param.leaf().shape().to_vec();
        entries.push((name, Entry { shape, values }));
    }
    let bytes = safetensors::serialize(entries, None)
        .map_err(|error| Error::file(path, format!("cannot be written: {error}")))?;
    replace_file(path, &bytes)
}

/// Puts the parameters in the file at `path` into `model`. Nothing changes unless every parameter
/// is there with its shape and dtype, and nothing else is.
///
/// # Errors
/// The file cannot be read; names, shapes or dtypes that disagree, all of them listed.
pub fn load_weights<D: Device>(model: &dyn Module<D>, device: &D, path: &Path) -> Result<()> {
    let file = File::open(path).map_err(|error| Error::file(path, error))?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::BufReader::new(file), &mut bytes)
        .map_err(|error| Error::file(path, error))?;
    let stored = SafeTensors::deserialize(&bytes)
        .map_err(|error| Error::file(path, format!("is not a whole safetensors file: {error}")))?;
    let mut rest: HashMap<String, _> = stored.tensors().into_iter().collect();
    let mut wrong = Vec::new();
    let mut ready = Vec::new();
    for (name, param) in model.named_parameters() {
        let leaf = param.leaf().clone();
        let Some(found) = rest.remove(&name) else {
            wrong.push(format!("{name} is missing"));
            continue;
        };
        if found.shape() != &leaf.shape()[..] {
            let (file, model) = (found.shape(), leaf.shape());
            wrong.push(format!("{name} is {file:?} in the file and {model:?} in the model"));
        } else if found.dtype() != stored_dtype(leaf.dtype()) {
            let (file, model) = (found.dtype(), leaf.dtype());
            wrong.push(format!("{name} is {file:?} in the file and {model} in the model"));
        } else {
            let mut values = HostVec::zeros(leaf.dtype(), leaf.shape().numel());
            values.bytes_mut().copy_from_slice(found.data());
            ready.push((leaf, Tensor::from_host(device, &values, found.shape())?));
        }
    }
    let mut unexpected: Vec<_> = rest.into_keys().collect();
    unexpected.sort();
    wrong.extend(unexpected.into_iter().map(|name| format!("{name} is not in the model")));
    if !wrong.is_empty() {
        return Err(Error::file(path, wrong.join("; ")));
    }
    ready.into_iter().try_for_each(|(leaf, value)| leaf.set_value(value))
}

/// Writes `bytes` to `path`, whole or not at all.
///
/// # Errors
/// The file cannot be written; the temporary one is removed.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension("partial");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // What is left of a failed write is of no use to anybody; the first error is what counts.
        let _ = std::fs::remove_file(&temporary);
        Error::file(path, format!("cannot be written: {error}"))
    })
}

struct Entry {
    shape: Vec<usize>,
    values: HostVec,
}

impl View for Entry {
    fn dtype(&self) -> Dtype {
        stored_dtype(self.values.dtype())
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(little_endian(&self.values))
    }

    fn data_len(&self) -> usize {
        self.values.len() * self.values.dtype().size()
    }
}

/// The format is little-endian on every machine.
fn little_endian(values: &HostVec) -> Vec<u8> {
    let slice = values.as_slice();
    let mut bytes = slice.bytes().to_vec();
    if cfg!(target_endian = "big") {
        bytes.chunks_mut(slice.dtype().size()).for_each(<[u8]>::reverse);
    }
    bytes
}

fn stored_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::BF16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        DType::U32 => Dtype::U32,
        DType::I64 => Dtype::I64,
        _ => Dtype::U8,
    }
}

//! The weights of a model as one safetensors file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use safetensors::tensor::{Dtype, SafeTensors, View};
use sneppx_contract::{DType, Device, Error, HostVec, Result};

use crate::nn::Module;
use crate::tensor::{Leaf, Tensor};

/// Writes every parameter of `model` to `path`, whole or not at all: the bytes go to a temporary
/// file in the same folder, reach the disk, and take the name last.
///
/// # Errors
/// The file cannot be written; the message has the path and the cause.
pub fn save_weights<D: Device>(model: &dyn Module<D>, path: &Path) -> Result<()> {
    let failure = Failure::default();
    let entries = model.named_parameters().into_iter().map(|(name, param)| {
        (name, Entry { leaf: param.leaf().clone(), failure: failure.clone() })
    });
    replace_with(path, |temporary| {
        let written = safetensors::serialize_to_file(entries, None, temporary);
        failure.take()?;
        written.map_err(|error| Error::file(path, format!("cannot be written: {error}")))
    })
}

/// Puts the parameters in the file at `path` into `model`. Nothing changes unless every parameter
/// is there with its shape and dtype, and nothing else is.
///
/// # Errors
/// The file cannot be read; names, shapes or dtypes that disagree, all of them listed.
pub fn load_weights<D: Device>(model: &dyn Module<D>, device: &D, path: &Path) -> Result<()> {
    let bytes = std::fs::read(path).map_err(|error| Error::file(path, error))?;
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
    replace_with(path, |temporary| {
        std::fs::write(temporary, bytes)
            .map_err(|error| Error::file(path, format!("cannot be written: {error}")))
    })
}

/// Lets `write` fill a temporary file, brings it to the disk and gives it its name.
fn replace_with(path: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let temporary = path.with_extension("partial");
    let finish = || -> std::io::Result<()> {
        File::options().write(true).open(&temporary)?.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    let written = write(&temporary).and_then(|()| {
        finish().map_err(|error| Error::file(path, format!("cannot be written: {error}")))
    });
    if written.is_err() {
        // What is left of a failed write is of no use to anybody; the first error is what counts.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// The first error of a read from the device, which the format's writer has no way to pass on.
#[derive(Clone, Debug, Default)]
struct Failure(Arc<Mutex<Option<Error>>>);

impl Failure {
    fn keep(&self, error: Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn take(&self) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

/// A parameter that is read from the device when its turn comes, so that one at a time is in host
/// memory.
struct Entry<D: Device> {
    leaf: Arc<Leaf<D>>,
    failure: Failure,
}

impl<D: Device> View for Entry<D> {
    fn dtype(&self) -> Dtype {
        stored_dtype(self.leaf.dtype())
    }

    fn shape(&self) -> &[usize] {
        self.leaf.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.leaf.value().and_then(|value| value.to_host()) {
            Ok(values) => Cow::Owned(little_endian(values)),
            Err(error) => {
                self.failure.keep(error);
                // The length was promised; what is written is thrown away.
                Cow::Owned(vec![0; self.data_len()])
            }
        }
    }

    fn data_len(&self) -> usize {
        self.leaf.shape().numel() * self.leaf.dtype().size()
    }
}

/// The format is little-endian on every machine.
fn little_endian(values: HostVec) -> Vec<u8> {
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

//! Safetensors to f32 tensors and back.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, View, serialize_to_file};

use super::{DrafterConfig, ModelError, Tensors, drafter_shapes};

/// Loads all tensors of a model directory as f32: `model.safetensors`, or the shards that
/// `model.safetensors.index.json` lists.
pub(super) fn load_dir(dir: &Path, device: &Device) -> Result<Tensors, ModelError> {
    load_dir_as(dir, device, |name| Some(name.to_owned()))
}

/// The same under other names; tensors that `rename` gives none are left in their files.
pub(super) fn load_dir_as(
    dir: &Path,
    device: &Device,
    rename: impl Fn(&str) -> Option<String>,
) -> Result<Tensors, ModelError> {
    load_dir_in(dir, device, rename, Width::F32)
}

/// How wide loaded tensors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// All f32, as computation on the CPU wants them.
    F32,
    /// Those that are stored in bf16 stay so, which halves the memory.
    Stored,
}

/// The same in a width of choice.
pub(super) fn load_dir_in(
    dir: &Path,
    device: &Device,
    rename: impl Fn(&str) -> Option<String>,
    width: Width,
) -> Result<Tensors, ModelError> {
    let index = dir.join("model.safetensors.index.json");
    let files = match index.exists() {
        true => shards(&index)?,
        false => BTreeSet::from(["model.safetensors".to_owned()]),
    };
    let mut tensors = Tensors::new();
    for file in files {
        let path = dir.join(file);
        tensors.extend(decode_as(&read(&path)?, &path, device, &rename, width)?);
    }
    Ok(tensors)
}

/// The files that an index names, each once.
fn shards(index: &Path) -> Result<BTreeSet<String>, ModelError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let text = read(index)?;
    let index: Index = serde_json::from_slice(&text).map_err(|source| ModelError::Json {
        path: index.to_owned(),
        source,
    })?;
    Ok(index.weight_map.into_values().collect())
}

fn read(path: &Path) -> Result<Vec<u8>, ModelError> {
    std::fs::read(path).map_err(|source| ModelError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Reads safetensors bytes; every tensor is widened (or narrowed) to f32. `path` is for errors.
pub(crate) fn decode(bytes: &[u8], path: &Path, device: &Device) -> Result<Tensors, ModelError> {
    decode_as(
        bytes,
        path,
        device,
        |name| Some(name.to_owned()),
        Width::F32,
    )
}

fn decode_as(
    bytes: &[u8],
    path: &Path,
    device: &Device,
    rename: impl Fn(&str) -> Option<String>,
    width: Width,
) -> Result<Tensors, ModelError> {
    let damaged = |problem: String| ModelError::Safetensors {
        path: path.to_owned(),
        problem,
    };
    let file = SafeTensors::deserialize(bytes).map_err(|error| damaged(error.to_string()))?;
    let mut tensors = Tensors::new();
    for (name, view) in file.iter() {
        let Some(own_name) = rename(name) else {
            continue;
        };
        if width == Width::Stored && view.dtype() == Dtype::BF16 {
            let chunks = view.data().as_chunks::<2>().0.iter();
            let values: Vec<bf16> = chunks.map(|&bytes| bf16::from_le_bytes(bytes)).collect();
            tensors.insert(own_name, Tensor::from_vec(values, view.shape(), device)?);
            continue;
        }
        let values = widen(&view).ok_or_else(|| {
            damaged(format!(
                "{name} is {:?}; only BF16, F16, F32 and F64 are read",
                view.dtype()
            ))
        })?;
        let tensor = Tensor::from_vec(values, view.shape(), device)?;
        tensors.insert(own_name, tensor);
    }
    Ok(tensors)
}

fn widen(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let bytes = view.data();
    Some(match view.dtype() {
        Dtype::BF16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        Dtype::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
        Dtype::F32 => each(bytes, f32::from_le_bytes),
        Dtype::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
        _ => return None,
    })
}

fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes
        .as_chunks::<N>()
        .0
        .iter()
        .map(|chunk| value(*chunk))
        .collect()
}

/// Writes tensors as the safetensors file `path`, in bf16 (rounded to nearest even) or f32, with the permissions of the file `like`. One
/// tensor is converted at a time, since all of them may not fit in memory twice.
///
/// The same tensors give the same bytes: names are sorted and the metadata has one entry.
///
/// # Errors
/// The disk refuses.
pub(crate) fn write(
    path: &Path,
    tensors: &Tensors,
    dtype: DType,
    like: &Path,
) -> Result<(), SafeTensorError> {
    let stored = tensors
        .iter()
        .map(|(name, tensor)| (name, Stored::of(tensor, dtype)));
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    serialize_to_file(stored, Some(metadata), path)?;
    // The library's file is its owner's alone.
    std::fs::set_permissions(path, std::fs::metadata(like)?.permissions())?;
    Ok(())
}

/// A tensor as a file holds it, converted when it is its turn.
struct Stored<'a> {
    tensor: &'a Tensor,
    dtype: Dtype,
}

impl<'a> Stored<'a> {
    fn of(tensor: &'a Tensor, dtype: DType) -> Self {
        let dtype = match dtype {
            DType::BF16 => Dtype::BF16,
            _ => Dtype::F32,
        };
        Self { tensor, dtype }
    }
}

impl View for Stored<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.tensor.dims()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let values = self.tensor.to_dtype(DType::F32);
        let values = values.and_then(|tensor| tensor.flatten_all()?.to_vec1::<f32>());
        let values = values.expect("tensors in host memory are read as f32");
        let bytes: Vec<u8> = match self.dtype {
            Dtype::BF16 => {
                let narrow = values.iter().map(|&x| bf16::from_f32(x));
                narrow.flat_map(bf16::to_le_bytes).collect()
            }
            _ => values.into_iter().flat_map(f32::to_le_bytes).collect(),
        };
        bytes.into()
    }

    fn data_len(&self) -> usize {
        self.tensor.elem_count() * self.dtype.bitsize() / 8
    }
}

/// Refuses weights that are not exactly those of a drafter. `origin` is for errors.
pub(crate) fn check_drafter(
    config: &DrafterConfig,
    weights: &Tensors,
    origin: &str,
) -> Result<(), ModelError> {
    check(weights, &drafter_shapes(config), origin)
}

/// Refuses tensors whose names or shapes are not exactly `shapes`. `origin` is for errors.
pub(super) fn check(
    tensors: &Tensors,
    shapes: &BTreeMap<String, Vec<usize>>,
    origin: &str,
) -> Result<(), ModelError> {
    let wrong = |name: &str, problem: String| ModelError::Weights {
        origin: origin.to_owned(),
        name: name.to_owned(),
        problem,
    };
    for (name, shape) in shapes {
        match tensors.get(name) {
            None => return Err(wrong(name, format!("is missing; expected shape {shape:?}"))),
            Some(tensor) if tensor.dims() != shape => {
                let have = tensor.dims();
                return Err(wrong(
                    name,
                    format!("has shape {have:?}, the config says {shape:?}"),
                ));
            }
            Some(_) => {}
        }
    }
    match tensors.keys().find(|name| !shapes.contains_key(*name)) {
        Some(name) => Err(wrong(name, "is not part of this architecture".to_owned())),
        None => Ok(()),
    }
}

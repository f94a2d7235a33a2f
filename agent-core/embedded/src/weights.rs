//! Opening and validation of a weights file.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{Content, Value};

use crate::llama::{Llama, ModelDimensions};

const MAGIC: &[u8; 4] = b"GGUF";

/// Error of opening or loading a weights file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// There is no file at the path.
    #[error("there are no model weights at {}", path.display())]
    Missing {
        /// Expected path.
        path: PathBuf,
    },
    /// The file exists but cannot be read.
    #[error("the model weights at {} cannot be read", path.display())]
    Unreadable {
        /// File path.
        path: PathBuf,
        /// I/O error.
        source: std::io::Error,
    },
    /// The file is not in GGUF format.
    #[error("{} is not a GGUF file", path.display())]
    NotGguf {
        /// File path.
        path: PathBuf,
    },
    /// The file is shorter than its header specifies.
    #[error("{} is truncated: {length} bytes, at least {expected} expected", path.display())]
    Truncated {
        /// File path.
        path: PathBuf,
        /// Actual length in bytes.
        length: u64,
        /// Minimum length in bytes.
        expected: u64,
    },
    /// The model architecture is not supported.
    #[error("{} has the architecture {architecture:?}; only \"llama\" is supported", path.display())]
    UnsupportedArchitecture {
        /// File path.
        path: PathBuf,
        /// Architecture named in the file.
        architecture: String,
    },
    /// The vocabulary type is not supported.
    #[error("{} has a tokenizer of kind {kind:?}; only \"gpt2\" with ChatML markers is supported", path.display())]
    UnsupportedVocabulary {
        /// File path.
        path: PathBuf,
        /// Vocabulary type named in the file, or the marker that is missing.
        kind: String,
    },
    /// The content of the file is inconsistent.
    #[error("{} is corrupt: {detail}", path.display())]
    Damaged {
        /// File path.
        path: PathBuf,
        /// Description of the inconsistency.
        detail: String,
    },
}

/// An opened GGUF file whose header is read and validated. The tensors are not loaded.
pub(crate) struct Weights {
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
    pub(crate) dimensions: ModelDimensions,
    reader: BufReader<File>,
}

impl Weights {
    /// Opens a file and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, WeightsError> {
        let path = path.to_owned();
        let unreadable = |source| WeightsError::Unreadable { path: path.clone(), source };
        let file = File::open(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => WeightsError::Missing { path: path.clone() },
            _ => unreadable(source),
        })?;
        let length = file.metadata().map_err(unreadable)?.len();
        let mut reader = BufReader::new(file);
        let mut magic = [0; 4];
        if reader.read_exact(&mut magic).is_err() || &magic != MAGIC {
            return Err(WeightsError::NotGguf { path });
        }
        reader.rewind().map_err(unreadable)?;
        let content = read_header(&mut reader).map_err(|fault| match fault {
            // The header's own lists extend beyond the end of the file.
            HeaderError::UnexpectedEof => {
                WeightsError::Truncated { path: path.clone(), length, expected: length + 1 }
            }
            HeaderError::Other(detail) => WeightsError::Damaged { path: path.clone(), detail },
        })?;
        let expected = required_length(&content);
        if length < expected {
            return Err(WeightsError::Truncated { path, length, expected });
        }
        let architecture = metadata_string(&content, "general.architecture");
        if architecture != "llama" {
            return Err(WeightsError::UnsupportedArchitecture { path, architecture });
        }
        let kind = metadata_string(&content, "tokenizer.ggml.model");
        if kind != "gpt2" {
            return Err(WeightsError::UnsupportedVocabulary { path, kind });
        }
        let dimensions = ModelDimensions::read(&content).map_err(|key| WeightsError::Damaged {
            path: path.clone(),
            detail: format!("{key} is missing or invalid"),
        })?;
        Ok(Self { path, content, dimensions, reader })
    }

    /// Returns the model name in the file's metadata.
    pub(crate) fn name(&self) -> String {
        metadata_string(&self.content, "general.name")
    }

    /// Loads the tensors. CPU-bound; takes about a second for a small model.
    pub(crate) fn load(mut self) -> Result<Llama, WeightsError> {
        Llama::load(self.dimensions, &self.content, &mut self.reader)
            .map_err(|error| WeightsError::Damaged { path: self.path, detail: first_line(&error) })
    }
}

enum HeaderError {
    UnexpectedEof,
    Other(String),
}

fn read_header(reader: &mut BufReader<File>) -> Result<Content, HeaderError> {
    Content::read(reader).map_err(|error| {
        // candle's messages for a file that ends too early: a read beyond the end, or a count check before
        // it.
        let ends = ["failed to fill whole buffer", "remaining"];
        let detail = first_line(&error);
        match ends.iter().any(|words| detail.contains(words)) {
            true => HeaderError::UnexpectedEof,
            false => HeaderError::Other(detail),
        }
    })
}

/// Returns the first line of an error, without the backtrace that candle may append.
fn first_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Returns the offset of the first byte after the last tensor.
fn required_length(content: &Content) -> u64 {
    let ends = content.tensor_infos.values().map(|info| {
        let blocks = info.shape.elem_count() / info.ggml_dtype.block_size();
        info.offset.saturating_add((blocks * info.ggml_dtype.type_size()) as u64)
    });
    content.tensor_data_offset.saturating_add(ends.max().unwrap_or(0))
}

fn metadata_string(content: &Content, key: &str) -> String {
    match content.metadata.get(key) {
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use candle_core::quantized::{GgmlDType, QTensor, gguf_file};
    use candle_core::{Device, Tensor};

    use super::*;

    fn gguf(metadata: &[(&str, Value)]) -> Vec<u8> {
        let tensor = Tensor::zeros((4, 32), candle_core::DType::F32, &Device::Cpu).unwrap();
        let tensor = QTensor::quantize(&tensor, GgmlDType::Q8_0).unwrap();
        let metadata: Vec<_> = metadata.iter().map(|(key, value)| (*key, value)).collect();
        let mut bytes = std::io::Cursor::new(Vec::new());
        gguf_file::write(&mut bytes, &metadata, &[("token_embd.weight", &tensor)]).unwrap();
        bytes.into_inner()
    }

    fn word(text: &str) -> Value {
        Value::String(text.to_owned())
    }

    #[test]
    fn each_fault_of_a_file_has_its_name() {
        let llama = [("general.architecture", word("llama")), ("tokenizer.ggml.model", word("gpt2"))];
        let valid_file = gguf(&llama);
        let bert = [("general.architecture", word("bert"))];
        let pieces = [("general.architecture", word("llama")), ("tokenizer.ggml.model", word("llama"))];
        let cases: [(&str, Vec<u8>, &str); 8] = [
            ("an empty file", vec![], "is not a GGUF file"),
            ("another format", b"PK\x03\x04 and more".to_vec(), "is not a GGUF file"),
            ("half a header", valid_file[..20].to_vec(), "is truncated: 20 bytes"),
            ("half the metadata", valid_file[..60].to_vec(), "is truncated: 60 bytes"),
            ("half a tensor", valid_file[..valid_file.len() - 40].to_vec(), "is truncated"),
            ("another architecture", gguf(&bert), "architecture \"bert\""),
            ("another vocabulary", gguf(&pieces), "tokenizer of kind \"llama\""),
            ("no sizes", valid_file, "is corrupt: llama.block_count is missing"),
        ];
        let folder = tempfile::tempdir().unwrap();
        for (case, bytes, fault) in cases {
            let path = folder.path().join("weights.gguf");
            File::create(&path).unwrap().write_all(&bytes).unwrap();
            let error = Weights::open(&path).err().expect(case).to_string();
            assert!(error.contains(fault), "{case}: {error}");
            assert!(error.contains("weights.gguf"), "{case}: {error}");
        }
        let missing = Weights::open(&folder.path().join("nowhere.gguf")).err().unwrap();
        assert!(matches!(missing, WeightsError::Missing { .. }), "{missing}");
    }
}

//! Vectors of a document's chunks, eight bits a component.

use std::collections::HashMap;

use thiserror::Error;

use super::dot_product::{DotProducts, dot_products};
use crate::embed::MAX_DIMENSIONS;

/// Maximum length of an embedder's identifier in bytes.
pub(super) const MAX_EMBEDDER_BYTES: usize = 512;

/// Normalized vectors of the chunks, each as bytes with a scale. A chunk may be without one.
#[derive(Debug, Clone, PartialEq)]
pub struct Vectors {
    embedder: Box<str>,
    dimensions: usize,
    /// The heads of all chunks.
    heads: Box<[RowHead]>,
    /// The components of the chunks with vectors.
    components: Box<[i8]>,
}

/// The part of a chunk's vector besides the components.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RowHead {
    /// The lower and the upper half of the hash of the chunk's input to the embedder; 0 for a chunk without a vector, and if the
    /// input is not known. In halves, it needs no padding.
    input: [u32; 2],
    /// Value of a component of 1; 0 for a chunk without a vector.
    scale: f32,
}

impl RowHead {
    const ABSENT: Self = Self { input: [0; 2], scale: 0.0 };

    fn new(input: u64, scale: f32) -> Self {
        Self { input: [input as u32, (input >> 32) as u32], scale }
    }

    fn input(self) -> u64 {
        u64::from(self.input[1]) << 32 | u64::from(self.input[0])
    }

    fn is_present(self) -> bool {
        self.scale > 0.0
    }
}

/// Builder of the vectors of a document's chunks, in the order of the chunks.
#[derive(Debug)]
pub(super) struct VectorsBuilder {
    embedder: Box<str>,
    dimensions: usize,
    heads: Vec<RowHead>,
    components: Vec<i8>,
}

/// The vector of a query, in the form of the vectors that it is compared with.
#[derive(Debug, Clone)]
pub(crate) struct QuantizedQuery {
    vector: Vectors,
    method: DotProducts,
}

impl QuantizedQuery {
    pub(crate) fn new(embedder: &str, vector: &[f32], method: DotProducts) -> Result<Self, VectorsError> {
        Ok(Self { vector: Vectors::quantize(embedder, vector.len(), &[Some(vector)])?, method })
    }
}

/// Error of storing the vectors of an embedder.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VectorsError {
    /// The number of vectors is not that of the chunks.
    #[error("{found} vectors for {expected} chunks")]
    Count {
        /// Number of chunks.
        expected: usize,
        /// Number of vectors.
        found: usize,
    },
    /// A vector has another number of components than the embedder's.
    #[error("a vector has {found} components; {expected} were expected")]
    Dimensions {
        /// The embedder's number of components.
        expected: usize,
        /// The vector's number of components.
        found: usize,
    },
    /// The number of components is 0 or too large, or the identifier too long.
    #[error(
        "an embedder has 1 to {MAX_DIMENSIONS} components and at most {MAX_EMBEDDER_BYTES} bytes of identifier"
    )]
    Embedder,
    /// A component is infinite or no number, or all are 0.
    #[error("a vector has components that are not finite, or the length 0")]
    NotFinite,
}

impl Vectors {
    /// Normalizes and stores the vectors of a document's chunks, in the order of the chunks.
    ///
    /// `embedder` identifies the model with its revision and prefixes: vectors of different identifiers are never
    /// compared.
    pub fn quantize(
        embedder: &str,
        dimensions: usize,
        vectors: &[Option<impl AsRef<[f32]>>],
    ) -> Result<Self, VectorsError> {
        let mut quantized = VectorsBuilder::new(embedder, dimensions)?;
        quantized.heads.reserve_exact(vectors.len());
        quantized.components.reserve_exact(vectors.iter().flatten().count() * dimensions);
        for vector in vectors {
            match vector {
                Some(vector) => quantized.push(0, vector.as_ref())?,
                None => quantized.push_absent(),
            }
        }
        Ok(quantized.finish())
    }

    /// Returns the vectors of the same chunks, with further vectors that replace earlier ones: for each the
    /// number of the chunk, in ascending order, the hash of its input, and its components.
    pub(super) fn with<'v>(
        &self,
        new_rows: impl IntoIterator<Item = (usize, u64, &'v [f32])>,
    ) -> Result<Self, VectorsError> {
        let mut merged = VectorsBuilder::new(&self.embedder, self.dimensions)?;
        let mut new_rows = new_rows.into_iter().peekable();
        for (chunk, row) in self.rows().enumerate() {
            match new_rows.next_if(|(number, ..)| *number == chunk) {
                Some((_, input, vector)) => merged.push(input, vector)?,
                None => merged.push_row(row),
            }
        }
        Ok(merged.finish())
    }

    /// Returns vectors for chunks with these inputs: this value's vectors where the inputs are equal, and no vector elsewhere.
    pub(super) fn for_inputs(&self, inputs: impl IntoIterator<Item = u64>) -> Self {
        let mut rows_by_input: HashMap<u64, VectorRow<'_>> =
            self.rows().flatten().map(|row| (row.input, row)).collect();
        rows_by_input.remove(&0);
        let mut reused = VectorsBuilder {
            embedder: self.embedder.clone(),
            dimensions: self.dimensions,
            heads: Vec::new(),
            components: Vec::new(),
        };
        for input in inputs {
            reused.push_row(rows_by_input.get(&input).copied());
        }
        reused.finish()
    }

    /// Returns vectors of an embedder for `chunks` chunks, all absent.
    pub(super) fn absent(embedder: &str, dimensions: usize, chunks: usize) -> Result<Self, VectorsError> {
        let mut absent = VectorsBuilder::new(embedder, dimensions)?;
        (0..chunks).for_each(|_| absent.push_absent());
        Ok(absent.finish())
    }

    /// Returns the number of chunks with vectors.
    pub fn present(&self) -> usize {
        self.presence().filter(|present| *present).count()
    }

    /// Returns a flag for each chunk, true if it has a vector.
    pub(crate) fn presence(&self) -> impl Iterator<Item = bool> {
        self.heads.iter().map(|head| head.is_present())
    }

    /// Returns the identifier of the embedder.
    pub fn embedder(&self) -> &str {
        &self.embedder
    }

    /// Returns the number of components of each vector.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the number of chunks, with and without vectors.
    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns the bytes of heap memory that the vectors occupy as a shared value.
    pub fn memory_bytes(&self) -> usize {
        let shared = 2 * size_of::<usize>() + size_of::<Self>();
        shared + self.embedder.len() + size_of_val(&*self.heads) + self.components.len()
    }

    /// Calls `visit` with each chunk that has a vector and the cosine of its vector and the query's, if both are of the
    /// same embedder and have as many components.
    pub(crate) fn for_each_similarity(
        &self,
        query: &QuantizedQuery,
        products: &mut Vec<i32>,
        mut visit: impl FnMut(u32, f32),
    ) {
        let Vectors { embedder, dimensions, heads, components } = &query.vector;
        if (&self.embedder, self.dimensions) != (embedder, *dimensions) {
            return;
        }
        dot_products(query.method, &self.components, components, products);
        let mut products = products.iter();
        for (chunk, head) in (0..).zip(&self.heads) {
            if head.is_present()
                && let Some(&product) = products.next()
            {
                visit(chunk, product as f32 * head.scale * heads[0].scale);
            }
        }
    }

    /// Returns the vector of each chunk, `None` for chunks without one.
    pub(super) fn rows(&self) -> impl Iterator<Item = Option<VectorRow<'_>>> {
        let mut rows = self.components.chunks_exact(self.dimensions);
        self.heads.iter().map(move |head| {
            let components = if head.is_present() { rows.next()? } else { return None };
            Some(VectorRow { input: head.input(), scale: head.scale, components })
        })
    }

    /// Returns the vector of a chunk, if it has one.
    pub(crate) fn row(&self, chunk: usize) -> Option<VectorRow<'_>> {
        let head = *self.heads.get(chunk).filter(|head| head.is_present())?;
        let is_complete = self.components.len() == self.heads.len() * self.dimensions;
        let row_number = match is_complete {
            true => chunk,
            false => self.presence().take(chunk).filter(|present| *present).count(),
        };
        let components = self.components.chunks_exact(self.dimensions).nth(row_number)?;
        Some(VectorRow { input: head.input(), scale: head.scale, components })
    }
}

impl VectorsBuilder {
    /// Creates a builder without chunks.
    pub(super) fn new(embedder: &str, dimensions: usize) -> Result<Self, VectorsError> {
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) || embedder.len() > MAX_EMBEDDER_BYTES {
            return Err(VectorsError::Embedder);
        }
        Ok(Self { embedder: embedder.into(), dimensions, heads: Vec::new(), components: Vec::new() })
    }

    /// Returns the vectors, which take no more memory than they need.
    pub(super) fn finish(self) -> Vectors {
        let Self { embedder, dimensions, heads, components } = self;
        Vectors { embedder, dimensions, heads: heads.into(), components: components.into() }
    }

    fn push(&mut self, input: u64, vector: &[f32]) -> Result<(), VectorsError> {
        if vector.len() != self.dimensions {
            return Err(VectorsError::Dimensions { expected: self.dimensions, found: vector.len() });
        }
        let length = vector.iter().map(|&component| f64::from(component).powi(2)).sum::<f64>().sqrt();
        if !length.is_finite() || length == 0.0 {
            return Err(VectorsError::NotFinite);
        }
        let largest = vector.iter().fold(0.0_f32, |largest, component| largest.max(component.abs()));
        let step = f64::from(largest) / 127.0;
        self.components.extend(vector.iter().map(|&component| (f64::from(component) / step).round() as i8));
        self.heads.push(RowHead::new(input, (step / length) as f32));
        Ok(())
    }

    pub(super) fn push_absent(&mut self) {
        self.heads.push(RowHead::ABSENT);
    }

    pub(super) fn push_row(&mut self, row: Option<VectorRow<'_>>) {
        let Some(row) = row else { return self.push_absent() };
        self.heads.push(RowHead::new(row.input, row.scale));
        self.components.extend_from_slice(row.components);
    }

    /// Appends a stored vector; false if the scale is not one that [`VectorsBuilder`] writes.
    pub(super) fn push_stored(&mut self, input: u64, scale: f32, components: &[u8]) -> bool {
        self.heads.push(RowHead::new(input, scale));
        self.components.extend(components.iter().map(|&byte| byte as i8));
        scale.is_finite() && scale > 0.0
    }
}

/// Returns the cosine of each vector with each of the others, one after another. All have as many components.
pub(crate) fn cosines(vectors: &[VectorRow<'_>], others: &[VectorRow<'_>]) -> Vec<f32> {
    let components: Vec<i8> = others.iter().flat_map(|row| row.components).copied().collect();
    let (mut cosines, mut products) = (Vec::with_capacity(vectors.len() * others.len()), Vec::new());
    for vector in vectors {
        dot_products(DotProducts::default(), &components, vector.components, &mut products);
        let products = products.iter().zip(others);
        cosines.extend(products.map(|(&product, other)| product as f32 * vector.scale * other.scale));
    }
    cosines
}

/// A stored vector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VectorRow<'a> {
    /// Hash of the input.
    pub(super) input: u64,
    /// Value of a component of 1.
    pub(super) scale: f32,
    /// The components.
    pub(crate) components: &'a [i8],
}

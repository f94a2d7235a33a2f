//! Matrices of 8-bit blocks, multiplied by candle's vectorised dot products or, for batches, its matrix product.
//!
//! Matrices are stored as `Q8_0` regardless of the precision of the file, because candle has vector kernels for `Q8_0` on
//! every processor. It has none for `Q4_1`, and multiplication takes three to five times as long there. Products run on
//! the caller's rayon pool, as those of candle's tensors in single precision do. The threads of candle's pool for quantised
//! products spin at a barrier after each product; if other work shares the cores, a token takes at least five times as long.

use candle_core::quantized::k_quants::BlockQ8_0;
use candle_core::quantized::{GgmlType, QTensor};
use candle_core::{Device, Error, Tensor};
use rayon::prelude::*;

const BLOCK: usize = BlockQ8_0::BLCK_SIZE;

/// Number of blocks quantised by one rayon task.
const BLOCKS_PER_TASK: usize = 4_096;
/// Number of matrix rows multiplied by one rayon task with [`Arithmetic::Int8`].
const ROWS_PER_TASK: usize = 32;
/// Minimum number of matrix rows multiplied by one rayon task with [`Arithmetic::Float32`], unless the matrix has fewer. In
/// single precision, so many rows fit in a core's second-level cache. With 64 or fewer, the order in which the library adds
/// up products depends on the number of vectors.
const MIN_PANEL_ROWS: usize = 96;
/// Minimum number of vectors of a matrix product. The library computes products of fewer ones in another order.
const MIN_PRODUCT_VECTORS: usize = 4;
/// Number of vectors from which [`Arithmetic::Float32`] takes less time than [`Arithmetic::Int8`].
const MIN_BATCH_VECTORS: usize = 12;

/// Arithmetic of a product with a batch of vectors. With either, the product of a vector is the same to the bit whatever
/// other vectors are in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// Dot products of 8-bit blocks; the vectors are quantised.
    Int8,
    /// Matrix product in single precision. Dequantising the matrix takes as long as four dot products of each row; further
    /// vectors take a quarter of the time.
    Float32,
}

impl Arithmetic {
    /// Returns the faster arithmetic for a number of vectors.
    pub(crate) fn fastest(vectors: usize) -> Self {
        if vectors < MIN_BATCH_VECTORS { Self::Int8 } else { Self::Float32 }
    }
}

/// A matrix of `rows` outputs by `columns` inputs.
pub(crate) struct Matrix {
    blocks: Vec<BlockQ8_0>,
    rows: usize,
    columns: usize,
}

impl Matrix {
    /// Stacks tensors of the same width vertically, so that one product covers all of them.
    pub(crate) fn stack(tensors: &[QTensor]) -> Result<Self, Error> {
        let mut matrix = Self { blocks: Vec::new(), rows: 0, columns: 0 };
        for tensor in tensors {
            let (rows, columns) = tensor.shape().dims2()?;
            if columns == 0 || !columns.is_multiple_of(BLOCK) || ![0, columns].contains(&matrix.columns) {
                return Err(Error::msg(format!(
                    "a {rows}x{columns} matrix does not match the tensor's data"
                )));
            }
            let values: Vec<f32> = tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()?;
            let start = matrix.blocks.len();
            matrix.blocks.resize(start + values.len() / BLOCK, BlockQ8_0::zeros());
            let blocks = matrix.blocks[start..].par_chunks_mut(BLOCKS_PER_TASK);
            blocks
                .zip(values.par_chunks(BLOCKS_PER_TASK * BLOCK))
                .for_each(|(blocks, values)| BlockQ8_0::from_float(values, blocks));
            matrix.rows += rows;
            matrix.columns = columns;
        }
        Ok(matrix)
    }

    /// Returns the number of outputs.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of inputs.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Dequantises one row into `into`.
    pub(crate) fn row(&self, index: usize, into: &mut [f32]) {
        BlockQ8_0::to_float(self.row_blocks(index), into);
    }

    /// Multiplies each vector of `inputs`, which are concatenated, and returns the products in the same
    /// order.
    pub(crate) fn multiply(&self, inputs: &[f32], arithmetic: Arithmetic) -> Vec<f32> {
        if inputs.len() < self.columns {
            return Vec::new();
        }
        match arithmetic {
            Arithmetic::Int8 => self.multiply_blocks(inputs),
            Arithmetic::Float32 => self.multiply_panels(inputs).expect("the dimensions of the product agree"),
        }
    }

    fn multiply_blocks(&self, inputs: &[f32]) -> Vec<f32> {
        let count = inputs.len() / self.columns;
        let mut blocks = vec![BlockQ8_0::zeros(); inputs.len() / BLOCK];
        BlockQ8_0::from_float(inputs, &mut blocks);
        let inputs: Vec<&[BlockQ8_0]> = blocks.chunks_exact(self.columns / BLOCK).collect();

        // Row-major order reads each row of weights once for all vectors.
        let mut by_row = vec![0.0; self.rows * count];
        by_row.par_chunks_mut(ROWS_PER_TASK * count).enumerate().for_each(|(task, products)| {
            for (offset, products) in products.chunks_exact_mut(count).enumerate() {
                let row = self.row_blocks(task * ROWS_PER_TASK + offset);
                for (product, input) in products.iter_mut().zip(&inputs) {
                    *product = BlockQ8_0::vec_dot(self.columns, row, input);
                }
            }
        });
        if count == 1 { by_row } else { transpose(&by_row, self.rows, count) }
    }

    fn multiply_panels(&self, inputs: &[f32]) -> Result<Vec<f32>, Error> {
        let count = inputs.len() / self.columns;
        let batch = count.max(MIN_PRODUCT_VECTORS);
        let mut padded = inputs.to_vec();
        padded.resize(batch * self.columns, 0.0);
        let inputs = Tensor::from_vec(padded, (batch, self.columns), &Device::Cpu)?;

        // Panels whose sizes differ by one row at most: the library computes products of a small one in another order.
        let panel_count = (self.rows / MIN_PANEL_ROWS).max(1);
        let width = self.columns / BLOCK;
        let multiply_panel = |number: usize| {
            let start = self.rows * number / panel_count;
            let end = self.rows * (number + 1) / panel_count;
            let rows = end - start;
            let mut panel = vec![0.0; rows * self.columns];
            BlockQ8_0::to_float(&self.blocks[start * width..end * width], &mut panel);
            let panel = Tensor::from_vec(panel, (rows, self.columns), &Device::Cpu)?;
            inputs.matmul(&panel.t()?)?.flatten_all()?.to_vec1()
        };
        let panels = (0..panel_count).into_par_iter().map(multiply_panel);
        let panels: Vec<Vec<f32>> = panels.collect::<Result<_, Error>>()?;
        let mut products = Vec::with_capacity(self.rows * count);
        for vector in 0..count {
            for panel in &panels {
                let rows = panel.len() / batch;
                products.extend_from_slice(&panel[vector * rows..(vector + 1) * rows]);
            }
        }
        Ok(products)
    }

    fn row_blocks(&self, index: usize) -> &[BlockQ8_0] {
        let width = self.columns / BLOCK;
        &self.blocks[index * width..(index + 1) * width]
    }
}

fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut transposed = vec![0.0; values.len()];
    for (r, row) in values.chunks_exact(columns).enumerate() {
        for (c, value) in row.iter().enumerate() {
            transposed[c * rows + r] = *value;
        }
    }
    transposed
}

#[cfg(test)]
mod tests {
    use candle_core::quantized::GgmlDType;

    use super::*;

    fn tensor(rows: usize, columns: usize, seed: usize) -> (Vec<f32>, QTensor) {
        let values: Vec<f32> =
            (0..rows * columns).map(|i| ((i * 7 + seed * 13) % 101) as f32 / 50.0 - 1.0).collect();
        let shaped = Tensor::from_slice(&values, (rows, columns), &Device::Cpu).unwrap();
        (values, QTensor::quantize(&shaped, GgmlDType::F32).unwrap())
    }

    #[test]
    fn products_of_stacked_matrices_equal_plain_arithmetic() {
        let (mut weights, first) = tensor(70, 64, 1);
        let (more, second) = tensor(5, 64, 2);
        weights.extend(more);
        let matrix = Matrix::stack(&[first, second]).unwrap();
        assert_eq!((matrix.rows(), matrix.columns()), (75, 64));
        let (inputs, _) = tensor(3, 64, 3);
        // The inputs are quantised too in one, and the weights alone in the other.
        for (arithmetic, tolerance) in [(Arithmetic::Int8, 0.3), (Arithmetic::Float32, 0.15)] {
            let products = matrix.multiply(&inputs, arithmetic);
            assert_eq!(products.len(), 3 * 75);
            for (i, input) in inputs.chunks(64).enumerate() {
                for (r, row) in weights.chunks(64).enumerate() {
                    let exact: f32 = row.iter().zip(input).map(|(a, b)| a * b).sum();
                    let got = products[i * 75 + r];
                    assert!((got - exact).abs() < tolerance, "vector {i}, row {r}: {got} for {exact}");
                }
            }
            assert!(matrix.multiply(&[], arithmetic).is_empty());
        }
    }

    /// Panels of several sizes, rows that no number of panels divides, and columns beyond the length of the sums that the
    /// library adds up at a time.
    #[test]
    fn products_do_not_depend_on_the_other_vectors() {
        for (rows, columns) in [(75, 64), (193, 576), (288, 1536), (3841, 576)] {
            let matrix = Matrix::stack(&[tensor(rows, columns, 1).1]).unwrap();
            let (inputs, _) = tensor(130, columns, 3);
            for arithmetic in [Arithmetic::Int8, Arithmetic::Float32] {
                let all = matrix.multiply(&inputs, arithmetic);
                for batch in [1, 2, 3, 5, 8, 16, 33, 64, 65, 100] {
                    for (n, some) in inputs.chunks(batch * columns).enumerate() {
                        let products = matrix.multiply(some, arithmetic);
                        let start = n * batch * rows;
                        assert!(
                            products == all[start..start + products.len()],
                            "{rows}x{columns}, {arithmetic:?}, batch {n} of {batch}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn widths_that_do_not_fit_are_refused() {
        assert!(Matrix::stack(&[tensor(2, 64, 1).1, tensor(2, 32, 1).1]).is_err());
        assert!(Matrix::stack(&[tensor(2, 33, 1).1]).is_err());
    }
}

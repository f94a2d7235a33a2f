//! Products of a query's vector with many vectors: the one hot loop of the search by vectors.
//!
//! The loop is written once. [`DotProducts::Wide`] runs it with the processor's widest instructions, which are found at
//! run time; without, the compiler may use only those that every processor of the architecture has.

use pulp::{Arch, NullaryFnOnce};

/// Components of a block.
const BLOCK: usize = 32;

/// Implementation of dot products of vectors. Both give equal results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DotProducts {
    /// With the widest instructions that the processor has.
    #[default]
    Wide,
    /// With the instructions that every processor of the architecture has.
    Plain,
}

/// Replaces `products` by the product of the query with each row of as many components.
pub(super) fn dot_products(method: DotProducts, rows: &[i8], query: &[i8], products: &mut Vec<i32>) {
    products.clear();
    if query.is_empty() {
        return;
    }
    match method {
        DotProducts::Wide => Arch::new().dispatch(EachRow { rows, query, products }),
        DotProducts::Plain => each_row(rows, query, products),
    }
}

struct EachRow<'a> {
    rows: &'a [i8],
    query: &'a [i8],
    products: &'a mut Vec<i32>,
}

impl NullaryFnOnce for EachRow<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        each_row(self.rows, self.query, self.products);
    }
}

/// Computes the product of the query with each row. Inlined, so that it is compiled for the instructions of the caller, as a
/// closure would not be.
#[inline(always)]
fn each_row(rows: &[i8], query: &[i8], products: &mut Vec<i32>) {
    products.reserve(rows.len() / query.len());
    for row in rows.chunks_exact(query.len()) {
        products.push(dot_product(row, query));
    }
}

/// Sums blocks of a constant length, which compilers turn into instructions for many components.
#[inline(always)]
fn dot_product(row: &[i8], query: &[i8]) -> i32 {
    let (row_blocks, row_rest) = row.as_chunks::<BLOCK>();
    let (query_blocks, query_rest) = query.as_chunks::<BLOCK>();
    let mut sum = 0;
    for (row, query) in row_blocks.iter().zip(query_blocks) {
        let mut block = 0;
        for at in 0..BLOCK {
            block += i32::from(row[at]) * i32::from(query[at]);
        }
        sum += block;
    }
    for (&left, &right) in row_rest.iter().zip(query_rest) {
        sum += i32::from(left) * i32::from(right);
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_ways_give_the_same_products(
            query in prop::collection::vec(any::<i8>(), 1..200), seed in any::<u64>(), count in 0_usize..9,
        ) {
            let mut state = seed | 1;
            let rows: Vec<i8> = (0..query.len() * count)
                .map(|_| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    (state >> 56) as i8
                })
                .collect();
            let exact: Vec<i32> = (0..count)
                .map(|row| (0..query.len()).map(|at| rows[row * query.len() + at] as i32 * query[at] as i32).sum())
                .collect();
            for method in [DotProducts::Wide, DotProducts::Plain] {
                let mut products = vec![7];
                dot_products(method, &rows, &query, &mut products);
                prop_assert_eq!(&products, &exact);
            }
        }
    }

    #[test]
    fn the_greatest_products_do_not_overflow() {
        let extreme = vec![i8::MIN; crate::embed::MAX_DIMENSIONS];
        for method in [DotProducts::Wide, DotProducts::Plain] {
            let mut products = Vec::new();
            dot_products(method, &extreme, &extreme, &mut products);
            assert_eq!(products, [8192 * 128 * 128]);
        }
    }
}

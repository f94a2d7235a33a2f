//! Permutation test of a square matrix of similarities.

/// Returns the number of standard deviations by which the similarities on the diagonal exceed those of a random assignment of the
/// columns to the rows; 0 if all assignments are alike.
///
/// Similarities are replaced by their ranks in their rows, so that no distribution is assumed and no outlier counts for
/// more. The sum of the ranks that an assignment selects has its exact mean and variance over all assignments (Hoeffding
/// 1951), so that columns that are similar to every row make no difference.
pub(super) fn standard_score(similarities: &[f32], size: usize) -> f64 {
    if size < 2 {
        return 0.0;
    }
    // Twice the rank, which is a whole number for ties too: between 0 and 2 (size - 1), with the mean size - 1 in each row.
    let mut selected = 0_u64;
    let mut squares = 0_u64;
    let mut columns = vec![0_u64; size];
    for (number, row) in similarities.chunks_exact(size).enumerate() {
        for (position, value) in row.iter().enumerate() {
            let less = row.iter().filter(|other| *other < value).count();
            let equal = row.iter().filter(|other| *other == value).count();
            let rank = (2 * less + equal - 1) as u64;
            squares += rank * rank;
            columns[position] += rank;
            if position == number {
                selected += rank;
            }
        }
    }
    let count = size as u64;
    // The sum of the squares of ranks less their columns' means, times the size.
    let spread = count * squares - columns.iter().map(|sum| sum * sum).sum::<u64>();
    if spread == 0 {
        return 0.0;
    }
    let variance = spread as f64 / (count * (count - 1)) as f64;
    (selected as f64 - (count * (count - 1)) as f64) / variance.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mean and the deviation over all assignments of four columns, and the sum of the diagonal, of ranks.
    fn enumerated(ranks: [[f64; 4]; 4]) -> f64 {
        let mut sums = Vec::new();
        for code in 0..256_usize {
            let columns = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
            if (0..4).all(|column| columns.contains(&column)) {
                sums.push((0..4).map(|row| ranks[row][columns[row]]).sum::<f64>());
            }
        }
        assert_eq!(sums.len(), 24);
        let mean = sums.iter().sum::<f64>() / 24.0;
        let variance = sums.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / 24.0;
        ((0..4).map(|at| ranks[at][at]).sum::<f64>() - mean) / variance.sqrt()
    }

    #[test]
    fn the_score_is_that_of_all_assignments() {
        #[rustfmt::skip]
        let similarities = [
            0.9, 0.1, 0.3, 0.2,
            0.5, 0.4, 0.5, 0.1,
            0.1, 0.2, 0.8, 0.7,
            0.3, 0.3, 0.3, 0.3,
        ];
        let ranks = [[3.0, 0.0, 2.0, 1.0], [2.5, 1.0, 2.5, 0.0], [0.0, 1.0, 3.0, 2.0], [1.5, 1.5, 1.5, 1.5]];
        let score = standard_score(&similarities, 4);
        assert!((score - enumerated(ranks)).abs() < 1e-9, "{score} in place of {}", enumerated(ranks));
        assert!(score > 0.0);
    }

    #[test]
    fn columns_that_are_similar_to_all_rows_make_no_difference() {
        // Each column is as similar to every row, so that every assignment selects the same ranks.
        let rows: Vec<f32> = (0..5).flat_map(|_| [0.1, 0.9, 0.5, 0.7, 0.3]).collect();
        assert_eq!(standard_score(&rows, 5), 0.0);
        assert_eq!(standard_score(&[0.5; 9], 3), 0.0, "equal similarities");
        assert_eq!(standard_score(&[0.5], 1), 0.0);
        assert_eq!(standard_score(&[], 0), 0.0);
    }

    #[test]
    fn a_diagonal_of_the_greatest_similarities_scores_high() {
        let size = 24;
        let matrix = |diagonal: f32| -> Vec<f32> {
            let value =
                |row: usize, column: usize| ((row * 7 + column * 13 + row * column) % 31) as f32 / 31.0;
            let cell = |cell: usize| (cell / size, cell % size);
            let cells = (0..size * size).map(cell);
            cells.map(|(row, column)| if row == column { diagonal } else { value(row, column) }).collect()
        };
        assert!(standard_score(&matrix(2.0), size) > 6.0);
        assert!(standard_score(&matrix(-2.0), size) < -6.0);
    }
}

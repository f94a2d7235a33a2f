//! Check and normalization of the vectors that a model answers: shared by all embedders.

use std::fmt;

use super::error::EmbedError;

/// Maximum number of components of a vector.
pub(crate) const MAX_DIMENSIONS: usize = 8192;

/// The vectors of the texts of one call, in their order: normalized to the length 1, finite, all of the same number of
/// components.
#[derive(Clone, PartialEq, Default)]
pub struct Embeddings {
    dimensions: usize,
    components: Vec<f32>,
}

impl Embeddings {
    /// Checks and normalizes the vectors of `expected` texts.
    ///
    /// # Errors
    /// [`EmbedError::InvalidAnswer`] if there are more or fewer vectors, if they have different numbers of components, none,
    /// or more than 8,192, if a component is not finite, or if all components of a vector are 0.
    pub fn new(
        expected: usize,
        vectors: impl IntoIterator<Item = impl AsRef<[f32]>>,
    ) -> Result<Self, EmbedError> {
        let mut embeddings = Self::default();
        let mut count = 0;
        for vector in vectors {
            count += 1;
            if count > expected {
                return Err(wrong_count(expected, "more"));
            }
            embeddings.push(vector.as_ref())?;
        }
        if count < expected {
            return Err(wrong_count(expected, &count.to_string()));
        }
        Ok(embeddings)
    }

    /// Checks and normalizes vectors that came with the positions of their texts, in any order.
    ///
    /// # Errors
    /// As [`new`](Self::new); also if a position occurs twice or not at all, or belongs to no text.
    pub fn from_indexed(
        expected: usize,
        vectors: impl IntoIterator<Item = (usize, Vec<f32>)>,
    ) -> Result<Self, EmbedError> {
        let mut ordered: Vec<Option<Vec<f32>>> = vec![None; expected];
        for (index, vector) in vectors {
            match ordered.get_mut(index) {
                Some(slot @ None) => *slot = Some(vector),
                Some(Some(_)) => return Err(invalid(format!("two vectors with the index {index}"))),
                None => return Err(invalid(format!("a vector with the index {index} for {expected} texts"))),
            }
        }
        if let Some(index) = ordered.iter().position(Option::is_none) {
            return Err(invalid(format!("no vector with the index {index}")));
        }
        Self::new(expected, ordered.into_iter().flatten())
    }

    /// Appends the vectors of further texts.
    ///
    /// # Errors
    /// [`EmbedError::InvalidAnswer`] if they have another number of components.
    pub fn append(&mut self, other: Self) -> Result<(), EmbedError> {
        if self.is_empty() {
            *self = other;
            return Ok(());
        }
        other.check_dimensions(self.dimensions)?;
        self.components.extend(other.components);
        Ok(())
    }

    /// Checks the number of components of each vector against the one that the model is known to have.
    ///
    /// # Errors
    /// [`EmbedError::InvalidAnswer`] if there are vectors with another number.
    pub fn check_dimensions(&self, expected: usize) -> Result<(), EmbedError> {
        if self.is_empty() || self.dimensions == expected {
            return Ok(());
        }
        Err(wrong_dimensions(expected, self.dimensions))
    }

    /// Returns the number of vectors.
    pub fn len(&self) -> usize {
        self.components.len().checked_div(self.dimensions).unwrap_or(0)
    }

    /// Returns true if there are no vectors.
    pub fn is_empty(&self) -> bool {
        self.components.is_empty()
    }

    /// Returns the number of components of each vector; 0 if there are no vectors.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the vectors, in the order of the texts.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.components.chunks_exact(self.dimensions.max(1))
    }

    fn push(&mut self, vector: &[f32]) -> Result<(), EmbedError> {
        if self.dimensions == 0 {
            if !(1..=MAX_DIMENSIONS).contains(&vector.len()) {
                return Err(invalid(format!("a vector of {} components", vector.len())));
            }
            self.dimensions = vector.len();
        }
        if vector.len() != self.dimensions {
            return Err(wrong_dimensions(self.dimensions, vector.len()));
        }
        if !vector.iter().all(|component| component.is_finite()) {
            return Err(invalid("a component is not finite".to_owned()));
        }
        let length = vector.iter().map(|&component| f64::from(component).powi(2)).sum::<f64>().sqrt();
        if length == 0.0 {
            return Err(invalid("all components of a vector are 0".to_owned()));
        }
        self.components.extend(vector.iter().map(|&component| (f64::from(component) / length) as f32));
        Ok(())
    }
}

impl fmt::Debug for Embeddings {
    /// Leaves out the components, from which a text can be guessed.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Embeddings");
        debug.field("len", &self.len()).field("dimensions", &self.dimensions).finish_non_exhaustive()
    }
}

fn invalid(message: String) -> EmbedError {
    EmbedError::InvalidAnswer(message)
}

fn wrong_count(expected: usize, actual: &str) -> EmbedError {
    invalid(format!("{actual} vectors for {expected} texts"))
}

fn wrong_dimensions(expected: usize, actual: usize) -> EmbedError {
    invalid(format!("a vector of {actual} components; {expected} were expected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T: fmt::Debug>(result: Result<T, EmbedError>) -> String {
        match result {
            Err(EmbedError::InvalidAnswer(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn vectors_are_normalized_and_keep_their_order() {
        let embeddings = Embeddings::new(3, [[3.0, 4.0], [0.0, -2.0], [1e-30, 0.0]]).unwrap();
        assert_eq!(embeddings.iter().collect::<Vec<_>>(), [[0.6, 0.8], [0.0, -1.0], [1.0, 0.0]]);
        assert_eq!((embeddings.len(), embeddings.dimensions()), (3, 2));
        let large = Embeddings::new(1, [[f32::MAX, f32::MAX]]).unwrap();
        assert!(large.iter().all(|vector| vector.iter().all(|component| component.is_finite())));
        let none = Embeddings::new(0, [[0.0; 0]; 0]).unwrap();
        assert_eq!((none.len(), none.is_empty(), none.iter().len()), (0, true, 0));
    }

    #[test]
    fn positions_order_the_vectors() {
        let vectors = [(2, vec![0.0, 2.0]), (0, vec![2.0, 0.0]), (1, vec![-2.0, 0.0])];
        let embeddings = Embeddings::from_indexed(3, vectors).unwrap();
        assert_eq!(embeddings.iter().collect::<Vec<_>>(), [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]);
    }

    #[test]
    fn invalid_answers_are_named() {
        let vector = || vec![1.0, 0.0];
        let error = |expected: usize, vectors: Vec<Vec<f32>>| message(Embeddings::new(expected, vectors));
        assert_eq!(error(2, vec![vector()]), "1 vectors for 2 texts");
        assert_eq!(error(1, vec![vector(), vector()]), "more vectors for 1 texts");
        assert_eq!(error(0, vec![vector()]), "more vectors for 0 texts");
        assert_eq!(error(2, vec![vector(), vec![1.0]]), "a vector of 1 components; 2 were expected");
        assert_eq!(error(1, vec![Vec::new()]), "a vector of 0 components");
        assert_eq!(error(1, vec![vec![1.0; MAX_DIMENSIONS + 1]]), "a vector of 8193 components");
        for component in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(error(1, vec![vec![1.0, component]]), "a component is not finite");
        }
        assert_eq!(error(2, vec![vector(), vec![0.0, -0.0]]), "all components of a vector are 0");
        let indexed_error = |vectors: Vec<(usize, Vec<f32>)>| message(Embeddings::from_indexed(2, vectors));
        assert_eq!(indexed_error(vec![(0, vector()), (0, vector())]), "two vectors with the index 0");
        assert_eq!(indexed_error(vec![(1, vector())]), "no vector with the index 0");
        assert_eq!(
            indexed_error(vec![(0, vector()), (2, vector())]),
            "a vector with the index 2 for 2 texts"
        );
    }

    #[test]
    fn calls_are_joined_if_their_vectors_have_the_same_dimensions() {
        let mut all = Embeddings::default();
        all.append(Embeddings::new(1, [[1.0, 0.0]]).unwrap()).unwrap();
        all.append(Embeddings::new(1, [[0.0, 1.0]]).unwrap()).unwrap();
        assert_eq!(all.len(), 2);
        let other = Embeddings::new(1, [[1.0]]).unwrap();
        assert_eq!(message(all.append(other)), "a vector of 1 components; 2 were expected");
        assert_eq!(all.len(), 2);
        assert_eq!(message(all.check_dimensions(3)), "a vector of 2 components; 3 were expected");
        assert_eq!(Embeddings::default().check_dimensions(3), Ok(()));
    }

    #[test]
    fn debug_shows_no_components() {
        let text = format!("{:?}", Embeddings::new(1, [[0.6, 0.8]]).unwrap());
        assert_eq!(text, "Embeddings { len: 1, dimensions: 2, .. }");
    }
}

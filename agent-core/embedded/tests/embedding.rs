//! A real embedding model against published similarities. `agentd model pull all-minilm-l6-v2` stores its files.

use std::path::Path;

use agent_embedded::{EmbeddingPriority, LocalEmbedder, catalog};

#[test]
fn minilm_gives_the_published_similarities() {
    let model = catalog::find("all-minilm-l6-v2").expect("a catalogue entry");
    let folder = std::env::var_os("MODEL_DIR");
    let folder = folder.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/models").into());
    let embedder =
        LocalEmbedder::open(model, Path::new(&folder), None).expect("`agentd model pull` has been run");
    let texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."];
    let vectors =
        futures_executor::block_on(embedder.embed(&texts, EmbeddingPriority::Document)).expect("vectors");
    let cosine = |left: usize, right: usize| {
        let product = |left: &[f32], right: &[f32]| left.iter().zip(right).map(|(a, b)| a * b).sum::<f32>();
        let (left, right) = (&vectors[left], &vectors[right]);
        product(left, right) / (product(left, left) * product(right, right)).sqrt()
    };
    // From the documentation of Sentence Transformers.
    for (left, right, published) in [(0, 1, 0.6660), (0, 2, 0.1046), (1, 2, 0.1411)] {
        let similarity = cosine(left, right);
        assert!(
            (similarity - published).abs() < 1e-3,
            "{left}, {right}: {similarity} in place of {published}"
        );
    }
}

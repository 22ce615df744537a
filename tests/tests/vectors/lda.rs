//! `lda`: the converged E-step of every document, statistics and bounds. The file stores topic by topic, the engine word by word.

use dp_pvi_models::latent_dirichlet::document::{Document, DocumentLength, Sweeps};
use dp_pvi_models::latent_dirichlet::perplexity::{HeldOut, held_out};
use dp_pvi_models::latent_dirichlet::{Shape, Topics};

use super::read::{FIXED_POINT, Node, Outcome, message};

/// Ascending words of a document and their counts. Words that do not occur stay in, with count 0: the file lists φ for them too.
type Counts = (Vec<u32>, Vec<f64>);

fn problem(root: &Node<'_>) -> Result<(Topics, Vec<Counts>), String> {
    let lambda = root.get("lambda")?.rows()?;
    let words = lambda.first().map_or(0, Vec::len);
    let size = |n: usize| u32::try_from(n).map_err(message);
    let shape = Shape::new(size(lambda.len())?, size(words)?, root.get("alpha")?.number()?, root.get("eta")?.number()?).map_err(message)?;
    let topics = Topics::new(shape, by_word(&lambda)).map_err(message)?;
    let documents = root.get("counts")?.rows()?.into_iter().map(|counts| ((0..).take(counts.len()).collect(), counts)).collect();
    Ok((topics, documents))
}

/// Word by word from topic by topic.
fn by_word(rows: &[Vec<f64>]) -> Vec<f64> {
    let words = rows.first().map_or(0, Vec::len);
    (0..words).flat_map(|v| rows.iter().map(move |row| row[v])).collect()
}

fn fitted(topics: &Topics, (indices, counts): &Counts) -> Result<Document, String> {
    let mut document = Document::default();
    if document.fit(topics, DocumentLength::AsIs, indices, counts, Sweeps::Converged) { Ok(document) } else { Err("no document".into()) }
}

pub(crate) fn documents(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let (topics, documents) = problem(root)?;
    let expected = node.list()?;
    if expected.len() != documents.len() {
        return Err("docs and counts do not belong together".into());
    }
    for (counts, expected) in documents.iter().zip(expected) {
        let document = fitted(&topics, counts)?;
        expected.key_equals("gamma", document.gamma(), FIXED_POINT)?;
        let phi: Vec<Vec<f64>> = (0..counts.0.len()).map(|word| document.phi(word).collect()).collect();
        // The file has φ topic by topic.
        expected.key_equals("phi", by_word(&phi), FIXED_POINT)?;
        let norm = document.statistics(&counts.0).map(|(_, value)| value * value).sum::<f64>().sqrt();
        expected.key_equals("stat_frobenius_norm", [norm], FIXED_POINT)?;
        expected.key_equals("bound", [document.bound(&topics, &counts.0).0], FIXED_POINT)?;
    }
    Ok(())
}

pub(crate) fn statistics(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let (topics, documents) = problem(root)?;
    let shape = topics.shape();
    let mut sums = vec![0.0; shape.coordinates()];
    for counts in &documents {
        for (index, value) in fitted(&topics, counts)?.statistics(&counts.0) {
            // Coordinate v·K + k of the engine is row k, column v of the file.
            let (word, topic) = (index as usize / shape.topics(), index as usize % shape.topics());
            sums[topic * shape.words() + word] += value;
        }
    }
    node.equals(sums, FIXED_POINT)
}

fn all(root: &Node<'_>) -> Result<HeldOut, String> {
    let (topics, documents) = problem(root)?;
    Ok(held_out(&topics, documents.iter().map(|(indices, counts)| (&indices[..], &counts[..])), Sweeps::Converged))
}

pub(crate) fn total_bound(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    node.equals([all(root)?.bound], FIXED_POINT)
}

pub(crate) fn perplexity_bound(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    node.equals([all(root)?.perplexity()], FIXED_POINT)
}

//! Sampling of the next token.

use std::collections::HashSet;

use llguidance::toktrie::SimpleVob;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// Sampling parameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sampling {
    /// Temperature. 0 always picks the likeliest token; 1 samples from the model's distribution.
    pub temperature: f32,
    /// Nucleus sampling: only the likeliest tokens whose probabilities add up to this value are candidates, 0
    /// to 1.
    pub top_p: f32,
    /// Divisor of the logits of recently generated tokens (multiplier for negative logits); 1 disables the
    /// penalty.
    pub repetition_penalty: f32,
    /// Seed of the random number generator. The same seed and prompt give the same answer.
    pub seed: u64,
}

impl Default for Sampling {
    /// Greedy decoding, with the light repetition penalty that keeps a small model from looping.
    fn default() -> Self {
        Self { temperature: 0.0, top_p: 0.9, repetition_penalty: 1.1, seed: 0 }
    }
}

/// Number of recent tokens that the repetition penalty applies to.
const PENALTY_WINDOW_TOKENS: usize = 64;

/// Bonus added to the logits of preferred tokens, in nats.
const PREFERENCE_NATS: f32 = 3.0;

pub(crate) struct Sampler {
    sampling: Sampling,
    random: SmallRng,
    preferred: HashSet<u32>,
}

impl Sampler {
    pub(crate) fn new(sampling: Sampling) -> Self {
        Self { sampling, random: SmallRng::seed_from_u64(sampling.seed), preferred: HashSet::new() }
    }

    /// Picks one of the `allowed` tokens, or of all tokens if it is `None`. Returns `None` if no token is
    /// allowed.
    pub(crate) fn pick(
        &mut self,
        logits: &mut [f32],
        allowed: Option<&SimpleVob>,
        generated: &[u32],
    ) -> Option<u32> {
        self.penalise(logits, generated);
        for token in &self.preferred {
            logits[*token as usize] += PREFERENCE_NATS;
        }
        let mut candidates = Vec::new();
        match allowed {
            Some(allowed) => allowed.iter_set_entries(|token| candidates.push(token as u32)),
            None => candidates.extend(0..logits.len() as u32),
        }
        let logit = |token: &u32| logits.get(*token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let picked = match self.sampling.temperature > 0.0 {
            true => self.draw(candidates, &logit),
            false => candidates.into_iter().max_by(|a, b| logit(a).total_cmp(&logit(b))),
        }?;
        self.preferred.remove(&picked);
        Some(picked)
    }

    /// Sets the preferred tokens. Each gets a bonus until it is picked.
    pub(crate) fn prefer(&mut self, tokens: impl IntoIterator<Item = u32>) {
        self.preferred = tokens.into_iter().collect();
    }

    fn penalise(&self, logits: &mut [f32], generated: &[u32]) {
        let recent: HashSet<u32> =
            generated[generated.len().saturating_sub(PENALTY_WINDOW_TOKENS)..].iter().copied().collect();
        for token in recent {
            let logit = &mut logits[token as usize];
            let penalty = self.sampling.repetition_penalty.max(f32::MIN_POSITIVE);
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
    }

    fn draw(&mut self, mut candidates: Vec<u32>, logit: &dyn Fn(&u32) -> f32) -> Option<u32> {
        candidates.sort_unstable_by(|a, b| logit(b).total_cmp(&logit(a)));
        let best = logit(candidates.first()?);
        let odds: Vec<f32> = candidates
            .iter()
            .map(|token| ((logit(token) - best) / self.sampling.temperature).exp())
            .collect();
        let goal = odds.iter().sum::<f32>() * self.sampling.top_p.clamp(0.0, 1.0);
        let mut nucleus = 0.0;
        let count = 1 + odds
            .iter()
            .take_while(|odd| {
                nucleus += **odd;
                nucleus < goal
            })
            .count();
        let odds = &odds[..count.min(odds.len())];
        let mut point = self.random.random::<f32>() * odds.iter().sum::<f32>();
        let drawn = odds.iter().position(|odd| {
            point -= odd;
            point < 0.0
        });
        candidates.get(drawn.unwrap_or(0)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [0.0, 3.0, 2.9, -1.0, 2.0];

    fn sampler(temperature: f32, top_p: f32, seed: u64) -> Sampler {
        Sampler::new(Sampling { temperature, top_p, repetition_penalty: 1.1, seed })
    }

    #[test]
    fn greedy_sampling_takes_the_likeliest_unrepeated_token() {
        let mut greedy = sampler(0.0, 1.0, 0);
        assert_eq!(greedy.pick(&mut LOGITS.clone(), None, &[]), Some(1));
        assert_eq!(greedy.pick(&mut LOGITS.clone(), None, &[1]), Some(2));
        let mut allowed = SimpleVob::alloc(LOGITS.len());
        assert_eq!(greedy.pick(&mut LOGITS.clone(), Some(&allowed), &[]), None);
        allowed.allow_token(0);
        allowed.allow_token(3);
        assert_eq!(greedy.pick(&mut LOGITS.clone(), Some(&allowed), &[]), Some(0));
    }

    #[test]
    fn sampling_depends_on_the_seed_and_stays_within_top_p() {
        let drawn = |seed| -> Vec<_> {
            let mut sampler = sampler(1.0, 0.6, seed);
            (0..64).map(|_| sampler.pick(&mut LOGITS.clone(), None, &[]).unwrap()).collect()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        assert!(drawn(7).iter().all(|token| [1, 2].contains(token)), "{:?}", drawn(7));
        assert!(drawn(7).contains(&1) && drawn(7).contains(&2));
    }
}

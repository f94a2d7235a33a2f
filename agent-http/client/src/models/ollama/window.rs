//! Detection of a prompt that Ollama truncated.
//!
//! Ollama silently truncates a prompt that is longer than its context window: it drops the oldest messages until the
//! rest fits, or keeps the end of the text that fills the window or half of it. `prompt_eval_count` reports the tokens
//! read **after** truncation, so it never indicates truncation by itself.
//!
//! Three comparisons with our own estimate of the prompt are reliable:
//!
//! - The estimate exceeds the window by more than a quarter. The estimate's error is smaller than that, so the prompt
//!   did not fit, whatever was read.
//! - The estimate exceeds the window, and the tokens read fill the window. A prompt that fits leaves room for an
//!   answer.
//! - The tokens read are half of the window plus a few tokens, which is what a truncation leaves, and the estimate
//!   exceeds that by more than a quarter.
//!
//! A small count alone proves nothing: some servers do not count tokens found in their cache, and omit the count if all
//! were cached. A count larger than the window is not compared either: the server then has a larger window than
//! requested, as Ollama's hosted models have. The cost of images depends on the model, so prompts with media are not
//! compared.
//!
//! A model whose own window is smaller than `num_ctx` is detected only by the third comparison, and only if its window
//! is half of `num_ctx`: the operator's `OLLAMA_NUM_CTX` should not exceed the models' windows.

use agent_platform::model_notice::ModelNotice;

/// Tolerance, in tokens, for a window that is full or half full after a truncation: servers keep some tokens of the
/// beginning, and add some of their own.
const WINDOW_SLACK_TOKENS: u64 = 32;

/// Returns a notice if the prompt was truncated. All three counts are in tokens.
pub(super) fn truncation_notice(estimated: u64, read: u64, num_ctx: u64) -> Option<ModelNotice> {
    let half = num_ctx / 2;
    let too_long = exceeds(estimated, num_ctx);
    let to_the_brim = estimated > num_ctx && read + WINDOW_SLACK_TOKENS >= num_ctx;
    let to_the_half = exceeds(estimated, read) && (half..=half + WINDOW_SLACK_TOKENS).contains(&read);
    let cut = read <= num_ctx && (too_long || to_the_brim || to_the_half);
    cut.then_some(ModelNotice::PromptCut {
        estimated_tokens: estimated,
        read_tokens: read,
        context_window: num_ctx,
    })
}

/// Returns true if an estimate exceeds a count by more than its error margin, a quarter.
fn exceeds(estimated: u64, tokens: u64) -> bool {
    estimated > tokens.saturating_add(tokens / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_is_distinguished_from_caching_and_wrong_estimates() {
        // Estimate, tokens read, and whether that is a truncation for a window of 8192.
        let cases = [
            (6_000, 6_000, false),
            (6_000, 5_100, false),
            (6_000, 6_900, false),
            // Almost all of the prompt was cached, or all of it.
            (6_000, 40, false),
            (6_000, 1, false),
            (6_000, 0, false),
            // Nearly full, within the error margin of the estimate.
            (8_100, 8_190, false),
            (9_000, 7_500, false),
            (10_000, 8_000, false),
            // A complete prompt of about half the window.
            (4_100, 4_098, false),
            (5_000, 4_100, false),
            // The end of the text fills the window, or half of it.
            (8_200, 8_192, true),
            (8_193, 8_160, true),
            (8_193, 8_159, false),
            (9_000, 4_098, true),
            (5_200, 4_098, true),
            (5_200, 4_128, true),
            (5_200, 4_129, false),
            (5_200, 4_095, false),
            // Far too long: old messages were dropped, and part of the rest was cached.
            (10_241, 7_000, true),
            (50_000, 7_000, true),
            (50_000, 12, true),
            (10_240, 7_000, false),
            // A window larger than requested.
            (50_000, 48_000, false),
            (50_000, 8_193, false),
        ];
        for (estimated, read, expected) in cases {
            let notice = truncation_notice(estimated, read, 8_192);
            assert_eq!(notice.is_some(), expected, "{estimated} by our count, {read} read");
        }
        assert_eq!(
            truncation_notice(20_000, 4_098, 8_192),
            Some(ModelNotice::PromptCut {
                estimated_tokens: 20_000,
                read_tokens: 4_098,
                context_window: 8_192
            })
        );
        assert_eq!(truncation_notice(u64::MAX, u64::MAX, u64::MAX), None);
    }
}

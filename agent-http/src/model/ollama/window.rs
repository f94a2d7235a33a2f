//! Whether the prompt was read as a whole.
//!
//! Ollama cuts a prompt that is longer than its window without a word: it leaves out the oldest messages
//! until the rest fits, or keeps the end of the text in as much as fills the window or half of it.
//! `prompt_eval_count` tells what was read **after** the cut, so it never shows by itself that there was one.
//!
//! Three comparisons with our own count of the prompt are sound:
//!
//! - Our count is a quarter more than the window. Our estimate is not that far off, so the prompt did not
//!   fit, whatever was read.
//! - Our count is more than the window, and what was read fills the window to the brim. A prompt that is
//!   left whole leaves room for an answer.
//! - What was read is half of the window and a few tokens, which is what a cut leaves, and our count is a
//!   quarter more than that.
//!
//! A small number alone says nothing: some servers do not count what they have found in their cache, and
//! leave the number out where that was all. Nor is there anything to compare where the number is larger
//! than the window: then the server has a larger one than was asked for, as Ollama's hosted models have.
//! What pictures cost depends on the model, so that prompts with media are not compared.
//!
//! A model whose own window is smaller than `num_ctx` is not found out but by the third comparison, and
//! by that only if it is half as large as another window would be: the operator's `OLLAMA_NUM_CTX` should
//! not be larger than the models'.

use agent_core::model::Notice;

/// How far from full or half-full a window may be after a cut, in tokens: servers keep some of the
/// beginning, and add some of their own.
const SLACK: u64 = 32;

/// The notice of a cut, if there was one. All three are in tokens.
pub(super) fn notice(estimated: u64, read: u64, num_ctx: u64) -> Option<Notice> {
    let half = num_ctx / 2;
    let too_long = exceeds(estimated, num_ctx);
    let to_the_brim = estimated > num_ctx && read + SLACK >= num_ctx;
    let to_the_half = exceeds(estimated, read) && (half..=half + SLACK).contains(&read);
    let cut = read <= num_ctx && (too_long || to_the_brim || to_the_half);
    cut.then_some(Notice::PromptCut {
        estimated_tokens: estimated,
        read_tokens: read,
        context_window: num_ctx,
    })
}

/// Whether a count of ours is more than another by more than it may be wrong, which is a quarter.
fn exceeds(estimated: u64, tokens: u64) -> bool {
    estimated > tokens.saturating_add(tokens / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_told_from_a_cache_and_from_an_estimate_that_is_off() {
        // Our count, what was read, and whether that is a cut of a window of 8192.
        let cases = [
            (6_000, 6_000, false),
            (6_000, 5_100, false),
            (6_000, 6_900, false),
            // The cache has had the most of it, or all but a token.
            (6_000, 40, false),
            (6_000, 1, false),
            (6_000, 0, false),
            // Nearly full, and off by as much as estimates may be.
            (8_100, 8_190, false),
            (9_000, 7_500, false),
            (10_000, 8_000, false),
            // A whole prompt of about half the window.
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
            // Far too long: old messages were left out, and the cache has had some of the rest.
            (10_241, 7_000, true),
            (50_000, 7_000, true),
            (50_000, 12, true),
            (10_240, 7_000, false),
            // A window that is larger than was asked for.
            (50_000, 48_000, false),
            (50_000, 8_193, false),
        ];
        for (estimated, read, expected) in cases {
            let notice = notice(estimated, read, 8_192);
            assert_eq!(notice.is_some(), expected, "{estimated} by our count, {read} read");
        }
        assert_eq!(
            notice(20_000, 4_098, 8_192),
            Some(Notice::PromptCut { estimated_tokens: 20_000, read_tokens: 4_098, context_window: 8_192 })
        );
        assert_eq!(notice(u64::MAX, u64::MAX, u64::MAX), None);
    }
}

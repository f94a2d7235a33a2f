//! Token counts of a call from the provider's report, or estimated.

use agent_core::message::Usage;

use super::TokenCounts;

/// Maximum number of tokens that one call can have. A report of more is wrong.
const MAX_CALL_TOKENS: u64 = 100_000_000;

/// Returns the tokens of a call, and true if any of them is an estimate. Counts that the provider has not reported, or that
/// no call can have, are replaced by `expected`. A part is at most its total.
pub(super) fn token_counts(reported: Option<&Usage>, expected: TokenCounts) -> (TokenCounts, bool) {
    let Some(usage) = reported else { return (expected, true) };
    let mut is_estimated = false;
    let mut checked_count = |reported: Option<u64>, expected: u64| match reported {
        Some(count) if count <= MAX_CALL_TOKENS => count,
        _ => {
            is_estimated = true;
            expected
        }
    };
    let input = checked_count(usage.input_tokens, expected.input_tokens);
    let output = checked_count(usage.output_tokens, expected.output_tokens);
    let mut part = |reported: Option<u64>, total: u64| {
        let count = reported.unwrap_or_default();
        is_estimated |= count > total;
        count.min(total)
    };
    let cached = part(usage.cached_input_tokens, input);
    let counts = TokenCounts {
        input_tokens: input,
        cached_input_tokens: cached,
        cache_write_tokens: part(usage.cache_write_tokens, input - cached),
        output_tokens: output,
        reasoning_tokens: part(usage.reasoning_tokens, output),
    };
    (counts, is_estimated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_counts_are_replaced_and_marked() {
        let expected = TokenCounts { input_tokens: 10, output_tokens: 3, ..TokenCounts::default() };
        let usage = |input, output, cached, write, reasoning| Usage {
            input_tokens: input,
            output_tokens: output,
            cached_input_tokens: cached,
            cache_write_tokens: write,
            reasoning_tokens: reasoning,
            ..Usage::default()
        };
        let huge = Some(1 << 63);
        let cases = [
            (usage(Some(7), Some(2), None, None, None), [7, 0, 0, 2, 0], false),
            (usage(Some(7), Some(2), Some(5), Some(2), Some(2)), [7, 5, 2, 2, 2], false),
            (usage(Some(0), Some(0), None, None, None), [0, 0, 0, 0, 0], false),
            (usage(None, Some(2), None, None, None), [10, 0, 0, 2, 0], true),
            (usage(Some(7), None, None, None, None), [7, 0, 0, 3, 0], true),
            (usage(huge, huge, huge, huge, huge), [10, 10, 0, 3, 3], true),
            (usage(Some(7), Some(2), Some(6), Some(6), Some(1)), [7, 6, 1, 2, 1], true),
            (Usage::default(), [10, 0, 0, 3, 0], true),
        ];
        for (usage, counts, is_estimated) in cases {
            let (found, estimated) = token_counts(Some(&usage), expected);
            let TokenCounts {
                input_tokens,
                cached_input_tokens,
                cache_write_tokens,
                output_tokens,
                reasoning_tokens,
            } = found;
            let found =
                [input_tokens, cached_input_tokens, cache_write_tokens, output_tokens, reasoning_tokens];
            assert_eq!((found, estimated), (counts, is_estimated), "{usage:?}");
        }
        assert_eq!(token_counts(None, expected), (expected, true));
    }
}

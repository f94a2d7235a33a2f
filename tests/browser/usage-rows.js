// Rows of usage as the server sends them, for a month in which a company had eight models.

const MODELS = [
  ['openai', 'gpt-5', 40, 9], ['openai', 'gpt-5-mini', 120, 1], ['anthropic', 'claude-sonnet-4-5', 30, 8], ['mistral', 'mistral-medium', 22, 3],
  ['google', 'gemini-2.5-flash', 60, 0.6], ['openai', 'text-embedding-3-small', 80, 0.05], ['groq', 'llama-3.3-70b', 12, 0.7], ['ollama', 'qwen3:8b', 25, 0],
];
const GROUPS = {
  agent: [['agentId', 'garden', 60], ['agentId', 'tools', 30], ['agentId', 'a-very-long-identifier-of-an-agent-that-was-deleted-long-ago', 8]],
  caller: [['caller', 'session', 50], ['caller', 'job', 20], ['caller', 'widget', 35], ['caller', 'mcp', 6]],
  user: [['userId', 'u1', 40], ['userId', 'ada', 30], ['userId', 'widget:0198a6b2-2f60-7c31-9a10-4c5d5e6f7a8b', 45]],
};

/** Number of days. */
const DAYS = 30;

const day = (place) => new Date(Date.now() - (DAYS - 1 - place) * 86_400_000).toISOString().slice(0, 10);

/** A number between 0 and 1 that is the same in each run. */
const noise = (seed) => Math.abs(Math.sin(seed * 12.9898) * 43_758.5453) % 1;

function sums(calls, price, isPriced = true) {
  const inputTokens = calls * 2400;
  const outputTokens = calls * 310;
  const cost = isPriced ? ((inputTokens * price) / 4 + outputTokens * price) / 1e6 : 0;
  return {
    runs: Math.ceil(calls * 0.7), calls, inputTokens, cachedInputTokens: Math.round(inputTokens * 0.6), cacheWriteTokens: 0, outputTokens,
    reasoningTokens: Math.round(outputTokens * 0.2), toolCalls: Math.round(calls * 0.4), cost: cost.toFixed(9), estimatedCost: '0.000000000', unpricedCalls: isPriced ? 0 : calls,
  };
}

/** Returns the rows of a query by its dimensions. @param {string[]} dimensions */
export function usageRows(dimensions) {
  const isByDay = dimensions.includes('day');
  const group = dimensions.find((name) => Object.hasOwn(GROUPS, name));
  return Array.from({ length: isByDay ? DAYS : 1 }, (_, place) => place).flatMap((place) => {
    const weekday = new Date(day(place)).getUTCDay();
    const scale = (weekday % 6 === 0 ? 0.25 : 1) * (0.6 + 0.4 * (place / DAYS));
    const calls = (count, seed) => Math.max(1, Math.round(count * scale * (0.6 + 0.8 * noise(place * 31 + seed))));
    const more = isByDay ? { day: day(place) } : {};
    if (group) return GROUPS[group].map(([member, name, count], seed) => ({ ...more, [member]: name, ...sums(calls(count, seed), 2) }));
    if (!dimensions.includes('model')) return [{ ...more, ...sums(calls(120, 0), 2) }];
    return MODELS.map(([provider, model, count, price], seed) => ({ ...more, provider, model, ...sums(calls(count, seed), price, price > 0) }));
  });
}

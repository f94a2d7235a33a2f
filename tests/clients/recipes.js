// Lets the recipes in examples/clients import the packages that are installed here. A recipe that is imported with
// `?6` gets version 6 of the AI SDK. Preloaded by `node --import`.

import { registerHooks } from 'node:module';

const recipes = new URL('../../examples/clients/', import.meta.url).href;
const packages = {
  6: { ai: 'ai-6', '@ai-sdk/react': '@ai-sdk/react-3' },
};

registerHooks({
  resolve(specifier, context, next) {
    const isPackage = !/^(\.|\/|[a-z]+:)/.test(specifier);
    if (!isPackage || !context.parentURL?.startsWith(recipes)) return next(specifier, context);
    const version = new URL(context.parentURL).search.slice(1);
    return next(packages[version]?.[specifier] ?? specifier, { ...context, parentURL: import.meta.url });
  },
});

/** Routes of the API by method and path, such as `GET /api/agents/{id}`, with the types of what they take and return. */

import type { paths } from './api.js';

type Method = 'get' | 'post' | 'put' | 'patch' | 'delete';

/** A route of the API. */
export type Route = {
  [P in keyof paths & string]: {
    [M in Method]: paths[P][M] extends { responses: unknown } ? `${Uppercase<M>} ${P}` : never;
  }[Method];
}[keyof paths & string];

/** The operation of a route. */
export type OperationOf<R extends Route> = R extends `${infer M} ${infer P}`
  ? P extends keyof paths
    ? Lowercase<M> extends keyof paths[P]
      ? paths[P][Lowercase<M>]
      : never
    : never
  : never;

/** A member that can be omitted where all of its own members can be. */
type Member<Name extends string, T> = [T] extends [undefined]
  ? { [N in Name]?: undefined }
  : Record<string, never> extends T
    ? { [N in Name]?: T }
    : { [N in Name]: T };

/** Values of a query: also other scalars than those of the description, which all become text. */
type QueryOf<T> = T extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;
type ParamsOf<T> = T extends { parameters: { path: infer P } } ? P : undefined;
type BodyOf<T> = T extends { requestBody: { content: { 'application/json': infer B } } }
  ? B
  : T extends { requestBody?: { content: { 'application/json': infer B } } }
    ? B | undefined
    : undefined;

/** Options of a call of a route: `params` of the path, `query`, `body`, and the conditions of its version. */
export type RouteOptions<R extends Route> = Member<'params', ParamsOf<OperationOf<R>>> &
  ([BodyOf<OperationOf<R>>] extends [undefined]
    ? { body?: unknown }
    : undefined extends BodyOf<OperationOf<R>>
      ? { body?: BodyOf<OperationOf<R>> }
      : { body: BodyOf<OperationOf<R>> }) & {
    query?: { [N in keyof QueryOf<OperationOf<R>>]?: QueryOf<OperationOf<R>>[N] | '' };
    ifMatch?: string;
    ifNoneMatch?: string;
    signal?: AbortSignal;
  };

/** Arguments after the route: the options can be left out where none of them is required. */
export type RouteArguments<R extends Route> = Record<string, never> extends RouteOptions<R>
  ? [options?: RouteOptions<R>]
  : [options: RouteOptions<R>];

type Responses<T> = T extends { responses: infer A } ? A : never;
type Content<T> = T extends { content: { 'application/json': infer B } } ? B : never;

/** What a route returns: the JSON of its successful responses; `undefined` where there is no body. */
export type RouteResult<R extends Route> =
  | Content<Responses<OperationOf<R>>[keyof Responses<OperationOf<R>> & (200 | 201 | 202)]>
  | (204 extends keyof Responses<OperationOf<R>> ? undefined : never);

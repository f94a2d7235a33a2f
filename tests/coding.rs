//! A coding subscription: the runtime's proxies of its model API and of its sign-in, and the agents that answer by it.

mod backend;
mod replicas;
mod runtime;
mod signin;

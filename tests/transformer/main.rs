//! The Transformer as its users meet it: names, errors, dropout, recomputation, threads, memory,
//! units, and models of one's own.

mod fixture;
mod naming;
mod own_models;
mod randomness;
mod refusals;
mod training;
mod unit_hooks;

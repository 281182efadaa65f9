//! The graph and the reverse walk: what is recorded, who hears of a gradient and when, what is
//! refused, and what it all costs in memory.

mod custom;
mod fixture;
mod graph;
mod leaves;
mod recompute;

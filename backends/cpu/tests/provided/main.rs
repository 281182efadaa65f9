//! The compositions of the contract on this device, against plain loops over `f64`.

mod bench;

mod rows;
mod pointwise;
mod loss;
mod attention;
mod runs;

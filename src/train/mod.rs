//! Training: the step, the loop around it, and what is reported.

mod evaluate;
mod floor;
mod metrics;
mod observe;
mod presets;
mod settings;
mod source;
mod step;
mod trainer;

pub use evaluate::evaluate;
pub use floor::{measure_product_rate, resident_peak_bytes};
pub use metrics::{MetricsFile, Summary};
pub use observe::{Evaluation, Observer, Start, StepReport};
pub use presets::{PRESETS, preset};
pub use settings::{Family, Precision, ScheduleKind, Settings};
pub use source::{Source, open_source};
pub use step::{StepSettings, StepSums, step};
pub use trainer::{Trainer, train};

//! The picture of a run: `loss.svg`.

use std::path::PathBuf;

use plotters::prelude::*;
use sneppx::train::{Evaluation, Observer, Start, StepReport, Summary};
use sneppx::{Error, Result};

/// Draws the course of the loss when the run is done.
#[derive(Debug)]
pub struct LossPlot {
    path: PathBuf,
    losses: Vec<(f64, f64)>,
    evaluations: Vec<(f64, f64)>,
    floor: Option<f64>,
}

impl LossPlot {
    /// A picture to be written to `path`.
    pub fn new(path: PathBuf) -> Self {
        LossPlot { path, losses: Vec::new(), evaluations: Vec::new(), floor: None }
    }

    fn draw(&self, summary: &Summary) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::new(&self.path, (960, 540)).into_drawing_area();
        root.fill(&WHITE)?;
        let caption = format!(
            "{}: {:.1} M parameters, {:.0} k tokens/s",
            summary.preset,
            summary.params as f64 / 1e6,
            summary.tokens_per_second / 1e3
        );
        let (low, high) = self.range();
        let last = self.losses.last().map_or(1.0, |point| point.0).max(1.0);
        let mut chart = ChartBuilder::on(&root)
            .caption(caption, ("sans-serif", 22, &INK))
            .margin(20)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(0.0..last, low..high)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .label_style(("sans-serif", 15, &INK))
            .x_desc("optimizer step")
            .y_desc("loss (nats per token)")
            .x_label_formatter(&|step| format!("{step:.0}"))
            .draw()?;
        chart.draw_series(LineSeries::new(self.losses.iter().copied(), TRAINING.mix(0.25)))?;
        chart
            .draw_series(LineSeries::new(self.smoothed(), TRAINING.stroke_width(2)))?
            .label("training")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], TRAINING.stroke_width(2)));
        if !self.evaluations.is_empty() {
            let points = self.evaluations.iter().copied();
            chart.draw_series(LineSeries::new(points.clone(), VALIDATION.stroke_width(2)))?;
            chart
                .draw_series(points.map(|point| Circle::new(point, 4, VALIDATION.filled())))?
                .label("validation")
                .legend(|(x, y)| Circle::new((x + 10, y), 4, VALIDATION.filled()));
        }
        if let Some(floor) = self.floor {
            let ends = [(0.0, floor), (last, floor)];
            chart
                .draw_series(DashedLineSeries::new(ends, 6, 4, INK.mix(0.7).into()))?
                .label(format!("entropy of the data, {floor:.3}"))
                .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], INK.mix(0.7)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.9))
            .border_style(GRID)
            .label_font(("sans-serif", 15, &INK))
            .draw()?;
        root.present()?;
        Ok(())
    }

    /// From a little below the lowest value to the first loss, which is about the highest.
    fn range(&self) -> (f64, f64) {
        let values = || self.losses.iter().chain(&self.evaluations).map(|point| point.1);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        let low = values().chain(self.floor).fold(f64::INFINITY, f64::min);
        let room = (high - low).max(1e-3) * 0.06;
        (low - room, high + room)
    }

    /// An exponential mean over about a fiftieth of the run.
    fn smoothed(&self) -> Vec<(f64, f64)> {
        let weight = 1.0 / (self.losses.len() as f64 / 50.0).max(1.0);
        let mut mean = None;
        let smooth = |&(step, loss): &(f64, f64)| {
            let next = mean.map_or(loss, |mean: f64| mean + weight * (loss - mean));
            mean = Some(next);
            (step, next)
        };
        self.losses.iter().map(smooth).collect()
    }
}

impl Observer for LossPlot {
    fn start(&mut self, start: &Start<'_>) -> Result<()> {
        self.floor = start.loss_floor;
        Ok(())
    }

    fn step(&mut self, report: &StepReport) -> Result<()> {
        self.losses.push((report.step as f64, report.loss));
        Ok(())
    }

    fn evaluation(&mut self, evaluation: &Evaluation) -> Result<()> {
        self.evaluations.push((evaluation.step as f64, evaluation.loss));
        Ok(())
    }

    fn finish(&mut self, summary: &Summary) -> Result<()> {
        self.draw(summary)
            .map_err(|error| Error::file(&self.path, format!("cannot be drawn: {error}")))
    }
}

const INK: RGBColor = RGBColor(38, 43, 51);
const GRID: RGBColor = RGBColor(222, 226, 231);
const TRAINING: RGBColor = RGBColor(31, 99, 194);
const VALIDATION: RGBColor = RGBColor(214, 93, 42);

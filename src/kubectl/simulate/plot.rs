//! Unallocated cards against load, as an SVG.

use std::error::Error;
use std::path::Path;

use divvy_simulate::report::Report;
use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 520);
/// Colours that stay apart for those who see red and green alike.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
];

/// One line a policy.
pub(super) fn draw(report: &Report, file: &Path) -> Result<(), Box<dyn Error>> {
    let text = svg(report)?;
    Ok(std::fs::write(file, text)?)
}

fn svg(report: &Report) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let last = f64::from(report.settings.until_pct.max(1));
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..last, 0.0..100.0)?;
        let asked = "what pods have asked for, % of all cards";
        chart.configure_mesh().x_desc(asked).y_desc("allocated, % of all cards").light_line_style(WHITE).draw()?;
        for (policy, colour) in report.policies.iter().zip(COLOURS.iter().cycle()) {
            let allocated = policy.at.iter().map(|at| (f64::from(at.arrived_pct), 100.0 - at.unallocated_pct_mean));
            chart
                .draw_series(LineSeries::new(allocated, colour.stroke_width(2)))?
                .label(policy.policy)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()?;
        area.present()?;
    }
    Ok(text)
}

//! Unallocated cards against load, as an SVG.

use std::error::Error;
use std::path::Path;

use divvy_simulate::report::PolicyReport;
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

const TEXT: (&str, i32) = ("sans-serif", 15);

/// One line a policy.
pub fn draw(policies: &[PolicyReport], until: u32, file: &Path) -> Result<(), Box<dyn Error>> {
    let text = svg(policies, until)?;
    Ok(std::fs::write(file, text)?)
}

fn svg(policies: &[PolicyReport], until: u32) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (first, last) = (first(until), f64::from(until.max(1)));
        let points = |policy: &PolicyReport| {
            let points = policy.at.iter().map(|at| (f64::from(at.arrived_pct), 100.0 - at.unallocated_pct_mean));
            points.filter(|(load, _)| *load >= first).collect::<Vec<_>>()
        };
        let allocated = policies.iter().flat_map(points).map(|(_, allocated)| allocated);
        let bottom = allocated.fold(first, f64::min).max(0.0);
        let mut chart = ChartBuilder::on(&area)
            .margin(20)
            .x_label_area_size(52)
            .y_label_area_size(60)
            .build_cartesian_2d(first..last, bottom..100.0)?;
        chart
            .configure_mesh()
            .x_desc("what pods have asked for, % of all GPUs")
            .y_desc("allocated, % of all GPUs")
            .x_label_formatter(&|load| format!("{load:.0}"))
            .y_label_formatter(&|allocated| format!("{allocated:.0}"))
            .label_style(TEXT)
            .light_line_style(WHITE)
            .draw()?;
        for (policy, colour) in policies.iter().zip(COLOURS.iter().cycle()) {
            chart
                .draw_series(LineSeries::new(points(policy), colour.stroke_width(2)))?
                .label(policy.policy)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .label_font(TEXT)
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()?;
        area.present()?;
    }
    Ok(text)
}

/// Where the picture begins: where a load is low nothing is refused, and nothing to be seen.
fn first(until: u32) -> f64 {
    if until > 80 { 60.0 } else { 0.0 }
}

//! Draws a panel of a figure as SVG.

use super::figures::Panel;
use plotters::prelude::*;

/// Of a panel, in points.
const SIZE: (u32, u32) = (560, 360);
/// Colours that are told apart without red and green (Okabe and Ito).
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(0, 0, 0),
    RGBColor(120, 120, 120),
    RGBColor(240, 228, 66),
];
/// So many names stand below a panel at most.
const NAMES_MOST: usize = 10;
/// Points are marked where there are no more than so many.
const MARKED_MOST: usize = 20;
/// How wide the names of series are, beside the points.
const LEGEND_SHARE: f64 = 0.5;
/// How far apart the largest and the smallest value are for a scale by powers.
const WIDE: f64 = 30.0;

/// The panel as SVG.
pub(super) fn svg(panel: &Panel) -> String {
    let values = panel.series.iter().flat_map(|it| &it.1).copied();
    let values: Vec<f64> = values.filter(|it| it.is_finite() && *it > 0.0).collect();
    let most = values.iter().copied().fold(0.0, f64::max).max(1e-9);
    let least = values.iter().copied().fold(most, f64::min);
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    let drawn = match most / least > WIDE {
        true => draw(&root, panel, (least / 1.5..most * 1.5).log_scale()),
        false => draw(&root, panel, 0.0..most * 1.1),
    };
    drawn.expect("text is written without fail");
    drop(root);
    text
}

fn draw<Y>(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    panel: &Panel,
    scale: Y,
) -> Result<(), Box<dyn std::error::Error>>
where
    Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
    Y::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
{
    root.fill(&WHITE)?;
    let count = panel.names.len();
    let last = count.saturating_sub(1) as f64;
    // The names of series stand beside their lines.
    let beside = if panel.series.len() > 1 {
        (last + 0.6) * LEGEND_SHARE
    } else {
        0.0
    };
    let mut chart = ChartBuilder::on(root)
        .caption(&panel.title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(42)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.3..last + 0.3 + beside, scale)?;
    let name = |at: &f64| {
        let place = at.round();
        let is_name = (at - place).abs() < 1e-6 && place >= 0.0;
        let name = panel.names.get(place as usize).filter(|_| is_name);
        name.cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(NAMES_MOST.min(count + count / 2))
        .x_label_formatter(&name)
        .y_label_formatter(&tick)
        .x_desc(panel.x)
        .y_desc(panel.y)
        .label_style(("sans-serif", 12))
        .axis_desc_style(("sans-serif", 13))
        .draw()?;
    for ((label, values), colour) in panel.series.iter().zip(COLOURS.iter().cycle()) {
        let points = (0..).map(f64::from).zip(values.iter().copied());
        let points: Vec<(f64, f64)> = points.filter(|it| it.1.is_finite() && it.1 > 0.0).collect();
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
        let key = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2));
        chart.draw_series(line)?.label(label).legend(key);
        if points.len() <= MARKED_MOST {
            let marks = points.iter().map(|it| Circle::new(*it, 3, colour.filled()));
            chart.draw_series(marks)?;
        }
    }
    if panel.series.len() > 1 {
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(RGBColor(200, 200, 200))
            .label_font(("sans-serif", 12))
            .position(SeriesLabelPosition::UpperRight)
            .draw()?;
    }
    root.present()?;
    Ok(())
}

/// What a line of the scale is called. Those of a scale by powers are sums, and a little off: 0.30000000000000004.
fn tick(value: &f64) -> String {
    let exact = (value * 1e6).round() / 1e6;
    exact.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_short() {
        let panel = Panel {
            title: "title".to_owned(),
            x: "pods",
            y: "times",
            names: vec!["8".to_owned(), "16".to_owned()],
            series: vec![("ours".to_owned(), vec![0.1, 3.3])],
        };
        let drawn = svg(&panel);
        assert!(
            drawn.contains("\n0.3\n") && drawn.contains("\n3\n"),
            "{drawn}"
        );
        assert!(!drawn.contains("0.3000"), "{drawn}");
    }

    #[test]
    fn a_panel_has_its_names_and_a_line_for_each_series() {
        let panel = Panel {
            title: "title".to_owned(),
            x: "pods",
            y: "times",
            names: vec!["8".to_owned(), "16".to_owned()],
            series: vec![
                ("fair".to_owned(), vec![1.0, 1.0]),
                ("ours".to_owned(), vec![2.0, f64::NAN]),
            ],
        };
        let drawn = svg(&panel);
        for text in ["title", "pods", "times", "fair", "ours"] {
            assert!(drawn.contains(text), "{text}");
        }
        assert!(drawn.starts_with("<svg") && drawn.matches("<circle").count() == 3);
    }
}

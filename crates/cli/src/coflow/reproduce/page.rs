//! Writes the page of all figures.

use super::figures::{Panel, PaperFigure, PrintedFact};
use std::fmt::Write;

/// What stands above the figures.
pub(super) struct Preface {
    /// What was simulated, a sentence each.
    pub(super) facts: Vec<String>,
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}\
    h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2.5rem;border-top:1px solid #ddd;padding-top:1rem}\
    figure{display:inline-block;margin:0 .5rem 1rem 0}img{max-width:100%;height:auto}\
    table{border-collapse:collapse;margin:.5rem 0 1rem;font-variant-numeric:tabular-nums}\
    td,th{padding:.2rem .8rem;border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}\
    details{margin:.5rem 0}summary{cursor:pointer}.why{max-width:48rem}";

/// A figure's panels, with the files in which they are drawn.
pub(super) struct DrawnFigure<'f> {
    pub(super) figure: &'f PaperFigure,
    pub(super) panels: Vec<(String, Panel)>,
    pub(super) printed: Vec<PrintedFact>,
}

/// The page.
pub(super) fn html(preface: &Preface, drawn: &[DrawnFigure<'_>]) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Stream's figures, simulated</title>\n<style>{STYLE}</style>\n\
         <h1>Stream's figures, simulated</h1>\n"
    );
    let _ = writeln!(
        text,
        "<p class=\"why\">Figures 6 to 14 of Susanto, Jin and Chen: <i>Stream: decentralized opportunistic inter-coflow scheduling for \
         datacenter networks</i> (ICNP 2016), with receiver-driven, the policy of Brambling, beside them.</p>"
    );
    for fact in &preface.facts {
        let _ = writeln!(text, "<p class=\"why\">{}</p>", escaped(fact));
    }
    for each in drawn {
        figure(&mut text, each);
    }
    text
}

fn figure(text: &mut String, drawn: &DrawnFigure<'_>) {
    let figure = drawn.figure;
    let _ = writeln!(
        text,
        "<h2 id=\"figure-{0}\">{1}</h2>",
        figure.number,
        escaped(&heading(figure))
    );
    for (file, panel) in &drawn.panels {
        let _ = writeln!(
            text,
            "<figure><img src=\"{file}\" width=\"560\" height=\"360\" alt=\"{}\"></figure>",
            escaped(&format!(
                "{}, {}: {} by {}",
                heading(figure),
                panel.title,
                panel.y,
                panel.x
            ))
        );
    }
    if !drawn.printed.is_empty() {
        text.push_str("<table><tr><th>what</th><th>the paper</th><th>here</th></tr>\n");
        for row in &drawn.printed {
            let _ = writeln!(
                text,
                "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
                escaped(row.what),
                escaped(row.paper),
                escaped(&row.ours)
            );
        }
        text.push_str("</table>\n");
    }
    let _ = writeln!(text, "<p class=\"why\">{}</p>", escaped(figure.why));
    text.push_str("<details><summary>All numbers</summary>\n");
    drawn
        .panels
        .iter()
        .for_each(|(_, panel)| numbers(text, panel));
    text.push_str("</details>\n");
}

/// A figure's number and title.
pub(super) fn heading(figure: &PaperFigure) -> String {
    match figure.number.parse::<u32>() {
        Ok(number) => format!("Figure {number}: {}", figure.title),
        Err(_) => figure.title.to_owned(),
    }
}

fn numbers(text: &mut String, panel: &Panel) {
    let _ = write!(
        text,
        "<table><caption>{}, {}</caption><tr><th>{}</th>",
        escaped(&panel.title),
        escaped(panel.y),
        escaped(panel.x)
    );
    for (name, _) in &panel.series {
        let _ = write!(text, "<th>{}</th>", escaped(name));
    }
    text.push_str("</tr>\n");
    for (at, name) in panel.names.iter().enumerate() {
        let _ = write!(text, "<tr><td>{}</td>", escaped(name));
        for (_, values) in &panel.series {
            match values.get(at).filter(|it| it.is_finite()) {
                Some(value) => {
                    let _ = write!(text, "<td>{value:.3}</td>");
                }
                None => text.push_str("<td>–</td>"),
            }
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

//! Measures, colours and text that all panels share.

use crate::system::System;

/// One part of the chart, drawn as if it began at the top.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) height: f64,
    pub(super) body: String,
}

pub(super) const WIDTH: f64 = 860.0;
pub(super) const HEADER_HEIGHT: f64 = 48.0;
/// Of the heading of a panel.
pub(super) const TITLE_HEIGHT: f64 = 30.0;

/// Convoke stands out; the others keep a colour of their own in every panel.
pub(super) fn colour(system: System) -> &'static str {
    if system.is_convoke() {
        return "#c2410c";
    }
    const OTHERS: [&str; 10] = [
        "#334155", "#64748b", "#2563eb", "#60a5fa", "#7c3aed", "#0d9488", "#be185d", "#f472b6",
        "#a16207", "#ca8a04",
    ];
    let mut others = System::ALL.iter().filter(|one| !one.is_convoke());
    let index = others.position(|one| *one == system).unwrap_or_default();
    OTHERS[index % OTHERS.len()]
}

pub(super) fn heading(title: &str) -> String {
    format!("<text x=\"16\" y=\"20\" font-weight=\"bold\">{}</text>\n", escape(title))
}

/// A number with as many digits as matter.
pub(super) fn number(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.0}k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

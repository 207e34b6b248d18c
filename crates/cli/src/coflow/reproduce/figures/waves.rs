//! Figure 8: coflows that come in waves.

use super::super::plan::{CoflowShape, Contender, RunPlan};
use super::{
    PaperFigure, PrintedFact, beside_stream, by_category, each, mice_beside_stream, times,
};
use brambling::coflow::simulate::SIZES_A;

fn waves(waves: u8) -> impl Fn(RunPlan) -> RunPlan {
    move |plan| RunPlan {
        shape: CoflowShape::Waves(waves),
        ..plan
    }
}

pub(super) fn figure_8() -> PaperFigure {
    let plans = (2..=4).flat_map(|count| each(waves(count))).collect();
    PaperFigure {
        number: "8",
        title: "Coflows that come in waves, 8 pods, 1 Gbit/s",
        why: "A wave begins here when the one before it is done; the paper does not say when. Flows of a later wave begin in the \
              class that their coflow is in.",
        plans,
        panels: |results| {
            let of =
                |count: u8| by_category(results, format!("{count} waves"), &waves(count), &SIZES_A);
            vec![of(2), of(3), of(4)]
        },
        printed: |results| {
            let all =
                |other| (2..=4).map(move |count| beside_stream(results, &waves(count), other));
            let first = |other| {
                (2..=4)
                    .map(move |count| mice_beside_stream(results, &waves(count), other, &SIZES_A))
            };
            let (fair, baraat, aalo) = (Contender::Fair, Contender::Baraat, Contender::Aalo4);
            let row = |what, paper, factor| PrintedFact {
                what,
                paper,
                ours: times(factor),
            };
            vec![
                row(
                    "stream beside fair, all",
                    "1.7 ×",
                    all(fair).fold(f64::NAN, f64::max),
                ),
                row(
                    "stream beside fair, I",
                    "up to 2.8 ×",
                    first(fair).fold(f64::NAN, f64::max),
                ),
                row(
                    "stream beside baraat, all",
                    "up to 1.9 × (elsewhere 1.7 ×)",
                    all(baraat).fold(f64::NAN, f64::max),
                ),
                row(
                    "stream beside aalo, all",
                    "similar",
                    all(aalo).fold(f64::NAN, f64::min),
                ),
            ]
        },
    }
}

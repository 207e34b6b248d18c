//! Multinomial gradients against a plain loop in the documented order, on every instruction set, and singles
//! against the doubles that equal them.
//!
//! The loop shares `exp` and `log1p` with the kernel (`functions.rs` answers for those) and nothing else.

use brambling_operators::ml::logistic::margins_block as linear_margins_block;
use brambling_operators::ml::logistic::{ComputeLoss, Labelled, Linear, Partial, gradient_block};
use brambling_operators::ml::softmax::{
    self, Classified, Linears, margins_block, probabilities_block,
};
use brambling_operators::numerics;
use brambling_operators::simd::Isa;
use proptest::collection::vec;
use proptest::prelude::*;

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn exp(x: f64) -> f64 {
    let mut out = [0.0];
    numerics::exp(Isa::V2, &[x], &mut out);
    out[0]
}

fn log1p(x: f64) -> f64 {
    let mut out = [0.0];
    numerics::log1p(Isa::V2, &[x], &mut out);
    out[0]
}

fn halved(lanes: [f64; 8]) -> f64 {
    let fours: Vec<f64> = (0..4).map(|i| lanes[i] + lanes[i + 4]).collect();
    (fours[0] + fours[2]) + (fours[1] + fours[3])
}

fn plain_margins(row: &[f64], model: Linears<'_>) -> Vec<f64> {
    let margin = |(weights, &intercept): (&[f64], &f64)| {
        let pairs = row.iter().zip(weights);
        pairs.fold(intercept, |sum, (x, w)| x.mul_add(*w, sum))
    };
    let weights = model.weights.chunks(row.len());
    weights.zip(model.intercepts).map(margin).collect()
}

/// Probabilities, and ln Σ e^margin.
fn plain_softmax(margins: &[f64]) -> (Vec<f64>, f64) {
    let greatest = margins.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = margins
        .iter()
        .map(|margin| exp(margin - greatest))
        .collect();
    let sum = powers.iter().fold(0.0, |sum, power| sum + power);
    let shares = powers.iter().map(|power| power / sum).collect();
    (shares, greatest + log1p(sum - 1.0))
}

fn plain_gradient(block: Classified<'_>, model: Linears<'_>) -> Vec<f64> {
    let classes = model.intercepts.len();
    let mut gradient = vec![0.0; model.weights.len()];
    let mut residuals = vec![[0.0; 8]; classes];
    let mut losses = [0.0; 8];
    for (index, (row, &y)) in block.x.chunks(block.columns).zip(block.y).enumerate() {
        let margins = plain_margins(row, model);
        let (mut shares, rest) = plain_softmax(&margins);
        losses[index % 8] += rest - margins[y as usize];
        shares[y as usize] -= 1.0;
        for (class, share) in shares.iter().enumerate() {
            residuals[class][index % 8] += share;
            let gradient = &mut gradient[class * block.columns..][..block.columns];
            for (gradient, x) in gradient.iter_mut().zip(row) {
                *gradient = x.mul_add(*share, *gradient);
            }
        }
    }
    gradient.extend(residuals.iter().map(|&lanes| halved(lanes)));
    gradient.push(halved(losses));
    gradient
}

type Case = (usize, usize, Vec<f32>, Vec<f64>, Vec<f64>);

/// Columns, classes, values, labels, and parameters.
fn case() -> impl Strategy<Value = Case> {
    (1..40_usize, 1..20_usize, 0..40_usize).prop_flat_map(|(columns, classes, rows)| {
        (
            Just(columns),
            Just(classes),
            vec(-3.0..3.0_f32, columns * rows),
            vec((0..classes).prop_map(|class| class as f64), rows),
            vec(-2.0..2.0_f64, classes * columns + classes),
        )
    })
}

fn check(case: &Case) {
    let (columns, classes, singles, y, parameters) = case;
    let (columns, classes) = (*columns, *classes);
    let doubles: Vec<f64> = singles.iter().map(|&x| f64::from(x)).collect();
    let (weights, intercepts) = parameters.split_at(classes * columns);
    let model = Linears {
        weights,
        intercepts,
    };
    let x = &doubles;
    let expected = plain_gradient(Classified { x, y, columns }, model);
    let margins: Vec<f64> = doubles
        .chunks(columns)
        .flat_map(|row| plain_margins(row, model))
        .collect();
    let shares: Vec<f64> = margins
        .chunks(classes)
        .flat_map(|row| plain_softmax(row).0)
        .collect();
    for isa in Isa::supported() {
        let mut out = vec![f64::NAN; expected.len()];
        softmax::gradient_block(isa, Classified { x, y, columns }, model, &mut out);
        assert_eq!(bits(&out), bits(&expected), "{isa}");
        out.fill(f64::NAN);
        let x = singles;
        softmax::gradient_block(isa, Classified { x, y, columns }, model, &mut out);
        assert_eq!(bits(&out), bits(&expected), "{isa}, singles");
        let mut out = vec![f64::NAN; margins.len()];
        margins_block(isa, singles, columns, model, &mut out);
        assert_eq!(bits(&out), bits(&margins), "{isa}");
        probabilities_block(isa, singles, columns, model, &mut out);
        assert_eq!(bits(&out), bits(&shares), "{isa}");
    }
}

/// Two classes: the same for singles and for the doubles that equal them.
fn check_two(case: &Case) {
    let (columns, _, singles, y, parameters) = case;
    let columns = *columns;
    let doubles: Vec<f64> = singles.iter().map(|&x| f64::from(x)).collect();
    let y: Vec<f64> = y.iter().map(|y| y % 2.0).collect();
    let model = Linear {
        weights: &parameters[..columns],
        intercept: 0.5,
    };
    for isa in Isa::supported() {
        let (mut of_doubles, mut of_singles) = (Partial::new(columns), Partial::new(columns));
        let (x, y) = (&doubles, &y);
        gradient_block(
            isa,
            Labelled { x, y, columns },
            model,
            ComputeLoss::Summed,
            &mut of_doubles,
        );
        let x = singles;
        gradient_block(
            isa,
            Labelled { x, y, columns },
            model,
            ComputeLoss::Summed,
            &mut of_singles,
        );
        assert_eq!(
            bits(of_doubles.values()),
            bits(of_singles.values()),
            "{isa}"
        );
        let (mut of_doubles, mut of_singles) = (vec![0.0; y.len()], vec![0.0; y.len()]);
        linear_margins_block(isa, &doubles, model, &mut of_doubles);
        linear_margins_block(isa, singles, model, &mut of_singles);
        assert_eq!(bits(&of_doubles), bits(&of_singles), "{isa}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn gradients_are_those_of_a_plain_loop_on_every_instruction_set(case in case()) {
        check(&case);
    }

    #[test]
    fn singles_have_the_bits_of_the_doubles_that_equal_them(case in case()) {
        check_two(&case);
    }
}

/// Longer rows than a vector of a wide kernel takes at once, and more rows than one turn.
#[test]
fn wide_rows_of_singles() {
    for (columns, rows) in [(8, 9), (64, 17), (65, 30), (130, 8)] {
        let number = |at: usize| ((at * 7_919 % 1_009) as f32 - 500.0) / 250.0;
        let singles: Vec<f32> = (0..rows * columns).map(number).collect();
        let y = (0..rows).map(|row| (row % 3) as f64).collect();
        let parameters = (0..3 * columns + 3)
            .map(|at| f64::from(number(at)) / 9.0)
            .collect();
        let case = (columns, 3, singles, y, parameters);
        check(&case);
        check_two(&case);
    }
}

#[test]
fn great_margins_do_not_overflow() {
    let model = Linears {
        weights: &[1_000.0, -1_000.0, 0.0],
        intercepts: &[0.0; 3],
    };
    for isa in Isa::supported() {
        let mut out = [0.0; 7];
        let (x, y, columns) = (&[1.0, -1.0][..], &[0.0, 0.0][..], 1);
        softmax::gradient_block(isa, Classified { x, y, columns }, model, &mut out);
        // The second row's loss is 2,000; its residuals are −1 and 1.
        assert_eq!(out, [1.0, -1.0, 0.0, -1.0, 1.0, 0.0, 2_000.0], "{isa}");
        let mut shares = [0.0; 6];
        probabilities_block(isa, x, 1, model, &mut shares);
        assert_eq!(shares, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0], "{isa}");
    }
}

#[test]
fn what_is_no_number_shows_and_what_is_no_class_is_nobodys() {
    let model = Linears {
        weights: &[0.0; 6],
        intercepts: &[0.0; 3],
    };
    for isa in Isa::supported() {
        for value in [f64::NAN, f64::INFINITY] {
            let mut x = vec![1.0; 20];
            x[13] = value;
            let y = [1.0; 10];
            let mut out = [0.0; 10];
            softmax::gradient_block(
                isa,
                Classified {
                    x: &x,
                    y: &y,
                    columns: 2,
                },
                model,
                &mut out,
            );
            assert!(
                out.iter().any(|value| value.is_nan()),
                "{isa} {value}: {out:?}"
            );
        }
        for label in [3.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            let mut out = [0.0; 10];
            softmax::gradient_block(
                isa,
                Classified {
                    x: &[1.0, 2.0],
                    y: &[label],
                    columns: 2,
                },
                model,
                &mut out,
            );
            let third = 1.0 / 3.0;
            assert_eq!(
                out[..6],
                [third, 2.0 * third, third, 2.0 * third, third, 2.0 * third]
            );
        }
    }
}

//! The rule's properties, and both literal readings of equation 2.

use super::*;
use proptest::prelude::*;

const UNIT: Unit = Unit {
    coflow: 0,
    part: 0,
    place: 3,
};

fn begun(settings: StreamSettings, flows: u32, sub_coflow: u32) -> StreamPolicy {
    let mut stream = StreamPolicy::new(settings);
    let event = CoflowEvent::Begun {
        unit: UNIT,
        sub_coflow,
        flows,
        bottleneck: None,
    };
    stream.hear(&event, &mut Vec::new());
    stream
}

/// The class after so many bytes.
fn class(stream: &mut StreamPolicy, own: f64) -> u8 {
    class_with(stream, own, 0)
}

/// The class after so many bytes, when so many flows are done.
fn class_with(stream: &mut StreamPolicy, own: f64, flows_done: u32) -> u8 {
    let bytes = Heard {
        own,
        ..Heard::default()
    };
    let event = CoflowEvent::Progressed {
        unit: UNIT,
        bytes,
        flows_done,
    };
    stream.hear(&event, &mut Vec::new());
    stream.known[&UNIT].class
}

/// The classes that a coflow has at these bytes, each told alone.
fn classes(settings: StreamSettings, megabytes: &[f64]) -> Vec<u8> {
    let of = |megabytes: &f64| class(&mut begun(settings, 1, 1), megabytes * 1e6);
    megabytes.iter().map(of).collect()
}

#[test]
fn thresholds_are_powers_of_ten() {
    let settings = StreamSettings {
        queues: 4,
        ..StreamSettings::default()
    };
    assert_eq!(
        classes(settings, &[0.0, 9.9, 10.0, 99.0, 101.0, 999.0, 1e3, 1e9]),
        [0, 0, 1, 1, 2, 2, 3, 3]
    );
}

#[test]
fn equation_2_with_one_threshold_spends_all_classes_within_a_few_times_that() {
    let settings = StreamSettings {
        queues: 4,
        rule: StreamRule::Fixed,
        ..StreamSettings::default()
    };
    // τ K ÷ (K − j): 13.3, 20 and 40 MB.
    assert_eq!(
        classes(
            settings,
            &[1.0, 10.0, 13.3, 13.4, 19.9, 20.0, 39.9, 40.0, 1e6]
        ),
        [0, 0, 0, 1, 1, 2, 2, 3, 3]
    );
}

#[test]
fn equation_2_with_the_threshold_at_hand_depends_on_how_often_it_is_looked_at() {
    let settings = StreamSettings {
        queues: 4,
        rule: StreamRule::Current,
        ..StreamSettings::default()
    };
    assert_eq!(classes(settings, &[150.0]), [3], "at once");
    let mut often = begun(settings, 1, 1);
    let each: Vec<u8> = (1..=1500)
        .map(|it| class(&mut often, f64::from(it) * 1e5))
        .collect();
    assert_eq!(
        (each[132], each[133], each[1499]),
        (0, 1, 1),
        "13.3 MB, and 200 MB to come"
    );
}

#[test]
fn a_coflow_of_many_parts_sinks_sooner_and_one_in_good_condition_later() {
    let settings = StreamSettings {
        alpha: 1.0,
        ..StreamSettings::default()
    };
    // ln 5 is 1.61.
    assert_eq!(class(&mut begun(settings, 1, 4), 6.2e6), 0);
    assert_eq!(class(&mut begun(settings, 1, 4), 6.3e6), 1);
    assert_eq!(class(&mut begun(settings, 1, 2), 9.2e6), 1, "ln 3 is 1.1");
    let mut half = begun(settings, 2, 1);
    let told = |own, flows_done| CoflowEvent::Progressed {
        unit: UNIT,
        bytes: Heard {
            own,
            ..Heard::default()
        },
        flows_done,
    };
    half.hear(&told(14.9e6, 1), &mut Vec::new());
    assert_eq!(
        half.known[&UNIT].class, 0,
        "half of its flows are done: 15 MB"
    );
    half.hear(&told(15.1e6, 1), &mut Vec::new());
    assert_eq!(half.known[&UNIT].class, 1);
}

#[test]
fn who_starves_rises_by_a_class() {
    let mut stream = begun(StreamSettings::default(), 1, 1);
    assert_eq!(class(&mut stream, 2e9), 3);
    let mut changes = Vec::new();
    stream.hear(&CoflowEvent::Starved { unit: UNIT }, &mut changes);
    assert_eq!(changes[0].order.class, 2);
    // It stays there until a megabyte has come, and then sinks to where it belongs.
    assert_eq!(stream.wants_at(UNIT), Some(2.001e9));
    assert_eq!(class(&mut stream, 2.0005e9), 2);
    assert_eq!(class(&mut stream, 2.001e9), 3);
}

fn rules() -> impl Strategy<Value = StreamRule> {
    prop_oneof![
        Just(StreamRule::Recommended),
        Just(StreamRule::Fixed),
        Just(StreamRule::Current)
    ]
}

proptest! {
    #[test]
    fn classes_never_rise_and_stay_within_the_queues(
        rule in rules(), queues in 1..9u8, alpha in 0.0..1.0f64, sub in 1..6u32,
        mut sizes in prop::collection::vec(0.0..1e12f64, 1..40), flow_bytes in prop_oneof![Just(0.0), 1e3..1e8f64],
    ) {
        let settings = StreamSettings { queues, rule, alpha, flow_bytes, ..StreamSettings::default() };
        sizes.sort_by(f64::total_cmp);
        let mut stream = begun(settings, sizes.len() as u32, sub);
        let mut before = 0;
        for (flows_done, size) in (0..).zip(sizes) {
            let now = class_with(&mut stream, size, flows_done);
            prop_assert!(now >= before && now < queues);
            before = now;
        }
    }

    #[test]
    fn the_recommended_rule_does_not_depend_on_how_often_it_is_looked_at(
        sizes in prop::collection::vec(1.0..1e12f64, 1..40), queues in 1..9u8,
    ) {
        let settings = StreamSettings { queues, ..StreamSettings::default() };
        let last = sizes.iter().copied().fold(0.0, f64::max);
        let mut often = begun(settings, 1, 1);
        let mut sorted = sizes;
        sorted.sort_by(f64::total_cmp);
        let ends = sorted.into_iter().map(|size| class(&mut often, size)).last();
        prop_assert_eq!(ends, Some(class(&mut begun(settings, 1, 1), last)));
    }

    #[test]
    fn it_asks_to_be_told_where_its_class_changes(
        rule in rules(), queues in 2..9u8, alpha in 0.0..1.0f64, sub in 1..6u32, size in 1.0..1e9f64,
    ) {
        let settings = StreamSettings { queues, rule, alpha, ..StreamSettings::default() };
        let mut stream = begun(settings, 4, sub);
        let now = class(&mut stream, size);
        if let Some(next) = stream.wants_at(UNIT) {
            prop_assert!(next > size);
            // Nearer than what rounding takes, it may be either.
            prop_assume!(next - size > 1.0);
            prop_assert_eq!(class(&mut stream.clone(), size + (next - size) * (1.0 - 1e-3)), now);
            prop_assert!(class(&mut stream, next * (1.0 + 1e-9)) > now);
        } else {
            prop_assert_eq!(now, queues - 1);
        }
    }

    #[test]
    fn with_one_receiver_it_queues_as_aalo(size in 1.0..1e13f64) {
        let mut aalo = crate::coflow::policy::Aalo::new(8, 10e6, 10.0);
        let mut changes = Vec::new();
        aalo.hear(&CoflowEvent::Begun { unit: UNIT, sub_coflow: 1, flows: 1, bottleneck: None }, &mut changes);
        let bytes = Heard { own: size, ..Heard::default() };
        aalo.hear(&CoflowEvent::Progressed { unit: UNIT, bytes, flows_done: 0 }, &mut changes);
        let class_of = changes.last().unwrap().order.class;
        prop_assert_eq!(class(&mut begun(StreamSettings::default(), 1, 1), size), class_of);
    }
}

//! The switch itself.

use brambling_memory::mutants;

#[cfg(not(feature = "mutants"))]
#[test]
fn without_the_feature_nothing_is_ever_on() {
    const OFF: bool = mutants::is_on("any");
    const { assert!(!OFF) };
}

#[cfg(feature = "mutants")]
#[test]
fn a_mutant_is_on_where_it_was_switched_on() {
    assert!(!mutants::is_on("a"));
    {
        let _a = mutants::on_this_thread("a");
        assert!(mutants::is_on("a") && !mutants::is_on("b"));
        std::thread::scope(|scope| {
            scope
                .spawn(|| assert!(!mutants::is_on("a")))
                .join()
                .unwrap()
        });
        let _b = mutants::on_every_thread("b");
        std::thread::scope(|scope| scope.spawn(|| assert!(mutants::is_on("b"))).join().unwrap());
    }
    assert!(!mutants::is_on("a") && !mutants::is_on("b"));
}

#[cfg(feature = "mutants")]
#[test]
#[should_panic(expected = "do not notice the mutant blind")]
fn a_test_that_cannot_fail_is_told_so() {
    mutants::assert_caught("blind", || {});
}

use super::*;
use PrintStream::{Err, Out};

/// What is sent, as text: for each batch its number, how many lines were left out, and its lines.
fn texts<'a>(batches: impl IntoIterator<Item = &'a Batch>) -> Vec<String> {
    let line = |line: &BufferedLine| {
        let sign = match line.stream {
            Out => ':',
            Err => '!',
        };
        let cut = match line.cut_bytes {
            0 => String::new(),
            bytes => format!("+{bytes}"),
        };
        format!(" {}{sign}{}{cut}", line.stage, line.text)
    };
    let batch = |batch: &Batch| {
        let lines: String = batch.lines.iter().map(line).collect();
        format!("{}-{}{lines}", batch.number, batch.left_out)
    };
    batches.into_iter().map(batch).collect()
}

/// What comes of texts that are printed to standard output for stages, when all is asked for.
fn check(printed: &[(&str, &str)], lines: &str) {
    let mut waiting = UnshownPrints::default();
    for (stage, text) in printed {
        assert!(waiting.print(Out, stage, text));
    }
    assert_eq!(texts(waiting.close()), [format!("0-0{lines}")]);
}

#[test]
fn lines_end_where_they_end() {
    check(&[("a", "one\ntwo\n")], " a:one a:two");
    // As Python prints.
    check(
        &[("a", "one"), ("a", " "), ("a", "two"), ("a", "\n")],
        " a:one two",
    );
    check(&[("a", "\n\n")], " a: a:");
    check(&[("a", "no end")], " a:no end");
    // Stages have lines of their own, and those that have not ended come last.
    check(
        &[("a", "one"), ("b", "two"), ("a", "\nthree"), ("b", "\n")],
        " a:one b:two a:three",
    );
}

#[test]
fn a_carriage_return_begins_a_line_again() {
    check(&[("a", "10 %\r20 %\r"), ("a", "30 %\n")], " a:30 %");
    check(&[("a", "one\r\ntwo\r"), ("a", "\n")], " a:one a:two");
    check(&[("a", "100 %\r"), ("a", "\r")], " a:100 %");
}

#[test]
fn long_lines_are_cut_at_a_letter() {
    let long = "x".repeat(LINE_BYTES_MAX - 1);
    check(
        &[("a", &long), ("a", "ü"), ("a", "z\nb\n")],
        &format!(" a:{long}+3 a:b"),
    );
    let stage = "s".repeat(STAGE_LETTERS_MAX);
    check(
        &[(&(stage.clone() + "more"), "one\n")],
        &format!(" {stage}:one"),
    );
}

#[test]
fn many_lines_that_have_begun_end() {
    let mut waiting = UnshownPrints::default();
    for stage in 0..=BEGUN_MAX {
        waiting.print(Out, &stage.to_string(), "begun");
    }
    assert_eq!(waiting.begun.len(), BEGUN_MAX);
    assert_eq!(
        waiting.next().map(|it| texts([it])),
        Some(vec!["0-0 0:begun".into()])
    );
}

#[test]
fn streams_are_told_apart() {
    let mut waiting = UnshownPrints::default();
    waiting.print(Out, "a", "one");
    waiting.print(Err, "a", "two\n");
    waiting.print(Out, "a", "\n");
    assert_eq!(texts(waiting.close()), ["0-0 a!two a:one"]);
}

#[test]
fn the_next_waits_until_what_was_sent_is_shown() {
    let mut waiting = UnshownPrints::default();
    assert_eq!(waiting.next(), None);
    waiting.print(Out, "a", "one\n");
    assert_eq!(waiting.next().map(|it| it.number), Some(0));
    waiting.print(Out, "a", "two\n");
    assert_eq!(waiting.next(), None);
    waiting.on_shown(0);
    // Said twice.
    waiting.on_shown(0);
    assert_eq!(texts(waiting.next()), ["1-0 a:two"]);
    // On another link what was sent goes again, once.
    waiting.repeat();
    assert_eq!(texts(waiting.next()), ["1-0 a:two"]);
    assert_eq!(waiting.next(), None);
    waiting.on_shown(1);
    waiting.repeat();
    assert_eq!(waiting.next(), None);
}

#[test]
fn what_is_sent_at_once_is_bounded() {
    let mut waiting = UnshownPrints::default();
    let text = "x".repeat(LINE_BYTES_MAX);
    for _ in 0..9 {
        waiting.print(Out, "a", &format!("{text}\n"));
    }
    assert_eq!(
        waiting.next().map(|it| it.lines.len()),
        Some(BATCH_BYTES / (LINE_BYTES_MAX + LINE_BYTES_BESIDE))
    );
}

#[test]
fn of_a_flood_the_last_lines_are_kept_and_the_others_counted() {
    let mut waiting = UnshownPrints::default();
    let lines = 100_000;
    for number in 0..lines {
        assert!(waiting.print(Out, "a", &format!("{number:5}\n")));
        assert!(waiting.bytes <= ROOM_BYTES);
    }
    let kept = waiting.lines.len();
    assert_eq!(kept, ROOM_BYTES / (1 + 5 + LINE_BYTES_BESIDE));
    let batches = waiting.close();
    assert_eq!(batches[0].left_out as usize, lines - kept);
    assert!(batches.iter().skip(1).all(|batch| batch.left_out == 0));
    let all: Vec<&BufferedLine> = batches.iter().flat_map(|batch| &batch.lines).collect();
    assert_eq!(all.len(), kept);
    assert_eq!(all[0].text, format!("{:5}", lines - kept));
    assert_eq!(all[kept - 1].text, format!("{:5}", lines - 1));
    assert_eq!((waiting.bytes, waiting.lines.len()), (0, 0));
}

#[test]
fn when_the_job_is_over_all_comes_and_nothing_more() {
    let mut waiting = UnshownPrints::default();
    waiting.print(Out, "a", "one\n");
    waiting.next();
    waiting.print(Out, "a", "two\nthree");
    assert_eq!(texts(waiting.close()), ["0-0 a:one", "1-0 a:two a:three"]);
    assert!(!waiting.print(Out, "a", "late\n"));
    // Asked for again, as on another link.
    waiting.on_shown(0);
    assert_eq!(texts(waiting.close()), ["1-0 a:two a:three"]);
    waiting.on_shown(1);
    assert_eq!(texts(waiting.close()), [""; 0]);
}

use super::*;

fn time(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 0).unwrap_or_default()
}

fn row(queue: &str, rank: i32, seconds: i64) -> Place {
    Place {
        queue: queue.to_owned(),
        rank,
        run_at: time(seconds),
        id: 1,
    }
}

/// A look through this range met many entries before it found the row.
fn found(range: i32, place: Option<Place>, visited: i64) -> Found {
    Found {
        range,
        step: 1,
        after: None,
        place,
        visited,
        held: None,
    }
}

/// `queue/rank@seconds..rank` for each range in one queue, without a time from the start of a rank on;
/// `queue..queue` for one of several queues.
fn shown(ranges: &Ranges) -> Vec<String> {
    let rank = |rank: i32| match rank {
        i32::MIN => "min".to_owned(),
        i32::MAX => "max".to_owned(),
        rank => rank.to_string(),
    };
    let it = &ranges.columns;
    let range = |at: usize| {
        let queue = &it.queues[at];
        if let Some(to) = &it.to_queues[at] {
            return format!("{queue}..{to}");
        }
        let seconds = it.times[at].timestamp();
        let seconds = if seconds < 0 {
            String::new()
        } else {
            format!("@{seconds}")
        };
        format!(
            "{queue}/{}{seconds}..{}",
            rank(it.ranks[at]),
            rank(it.to_ranks[at])
        )
    };
    (0..ranges.lines.len()).map(range).collect()
}

#[test]
fn a_worker_looks_everywhere_at_first() {
    let marks = Marks::default();
    let exact = marks.ranges(&[(1, "media"), (2, "mail")]);
    assert_eq!(shown(&exact), ["media/min..max", "mail/min..max"]);
    assert_eq!(exact.lines, [Some(1), Some(2)]);
    let prefix = marks.ranges(&[(1, "media.*"), (2, "media.hd"), (3, "*")]);
    assert_eq!(shown(&prefix), ["..~"], "one covers the others");
    assert_eq!(prefix.lines, [None]);
}

#[test]
fn a_look_begins_where_the_last_one_found_something() {
    let marks = Marks::default();
    let all = [(1, "q")];
    let first = marks.ranges(&all);
    marks.learn(&first, &[found(1, Some(row("q", 0, 50)), 100)], time(60));
    let second = marks.ranges(&all);
    assert_eq!(shown(&second), ["q/min..0", "q/0@50..max"]);
    marks.learn(&second, &[found(2, Some(row("q", 0, 70)), 100)], time(80));
    assert_eq!(shown(&marks.ranges(&all)), ["q/min..0", "q/0@70..max"]);
}

#[test]
fn a_look_passes_a_row_that_another_transaction_holds_for_long() {
    let marks = Marks::default();
    let all = [(1, "q")];
    let behind_held = |range: i32, seconds: i64| Found {
        held: Some(7),
        ..found(range, Some(row("q", 1, seconds)), MIN_GAP_ENTRIES)
    };
    let look = marks.ranges(&all);
    marks.learn(&look, &[behind_held(1, 50)], time(60));
    assert_eq!(
        shown(&marks.ranges(&all)),
        ["q/min..max"],
        "a claim of another worker locks rows too"
    );
    marks.learn(&look, &[behind_held(1, 55)], time(62));
    assert_eq!(
        shown(&marks.ranges(&all)),
        ["q/min..1", "q/1@55..max"],
        "other ranks may have work"
    );
    // The sweep finds the row, and claims try it again.
    let sweep = marks.sweep();
    let held = Swept {
        part: 1,
        place: Some(row("q", 1, 10)),
        visited: 1,
    };
    assert_eq!(marks.swept(&sweep, &[held]), ["q"]);
    let look = marks.ranges(&all);
    assert_eq!(shown(&look), ["q/min..1", "q/1@10..max"]);
    marks.learn(&look, &[behind_held(2, 70)], time(80));
    assert_eq!(shown(&marks.ranges(&all)), ["q/min..1", "q/1@70..max"]);
}

#[test]
fn where_nothing_is_left_only_what_is_old_is_left_out() {
    let marks = Marks::default();
    let all = [(1, "q")];
    let first = marks.ranges(&all);
    marks.learn(&first, &[found(1, Some(row("q", 0, 50)), 100)], time(60));
    let second = marks.ranges(&all);
    marks.learn(&second, &[found(2, None, 100)], time(80));
    assert_eq!(shown(&marks.ranges(&all)), ["q/min..0", "q/0@79..max"]);
}

#[test]
fn a_notification_lowers_the_mark_of_its_queue() {
    let marks = Marks::default();
    let all = [(1, "*")];
    let first = marks.ranges(&all);
    let second = Found {
        step: 2,
        after: Some(("a".to_owned(), 0)),
        ..found(1, Some(row("b", 3, 50)), 100)
    };
    marks.learn(
        &first,
        &[found(1, Some(row("a", 0, 50)), 100), second],
        time(60),
    );
    assert_eq!(
        shown(&marks.ranges(&all)),
        [
            "..a",
            "a/min..0",
            "a/0@50..max",
            "a ..b",
            "b/min..3",
            "b/3@50..max",
            "b ..~"
        ]
    );
    marks.cut("b", time(40));
    marks.cut("a", time(55));
    marks.cut("c", time(1));
    assert_eq!(
        shown(&marks.ranges(&all)),
        [
            "..a",
            "a/min..0",
            "a/0@50..max",
            "a ..b",
            "b/min..3",
            "b/3@40..max",
            "b ..~"
        ]
    );
}

#[test]
fn a_look_that_was_under_way_does_not_undo_what_a_notification_said() {
    let marks = Marks::default();
    let all = [(1, "q")];
    let look = marks.ranges(&all);
    marks.cut("q", time(30));
    marks.learn(&look, &[found(1, Some(row("q", 0, 50)), 100)], time(60));
    assert_eq!(shown(&marks.ranges(&all)), ["q/min..0", "q/0@30..max"]);

    // One that began before more notifications than are kept says nothing at all.
    let look = marks.ranges(&all);
    for _ in 0..=MAX_CUTS {
        marks.cut("other", time(30));
    }
    marks.learn(&look, &[found(2, Some(row("q", 0, 50)), 100)], time(60));
    assert_eq!(shown(&marks.ranges(&all)), ["q/min..0", "q/0@30..max"]);
}

#[test]
fn many_dead_entries_between_queues_are_left_out_until_one_of_them_has_work() {
    let marks = Marks::default();
    let all = [(1, "*")];
    let look = marks.ranges(&all);
    let far = Found {
        step: 2,
        after: Some(("a".to_owned(), 0)),
        ..found(1, Some(row("z", 0, 50)), MIN_GAP_ENTRIES)
    };
    marks.learn(&look, &[far], time(60));
    assert_eq!(
        shown(&marks.ranges(&all)),
        ["..a", "a/min..1", "z/0@50..max", "z ..~"]
    );
    marks.cut("m", time(55));
    assert_eq!(
        shown(&marks.ranges(&all)),
        ["..a", "a/min..1", "m/min..max", "z/0@50..max", "z ..~"]
    );
    assert_eq!(shown(&marks.ranges(&[(1, "m")])), ["m/min..max"]);
    assert_eq!(
        shown(&marks.ranges(&[(1, "n")])),
        [""; 0],
        "its notification will tell"
    );
}

#[test]
fn a_sweep_finds_rows_behind_a_mark_and_forgets_marks_that_save_nothing() {
    let marks = Marks::default();
    let all = [(1, "q")];
    let look = marks.ranges(&all);
    marks.learn(&look, &[found(1, Some(row("q", 0, 50)), 100)], time(60));
    let swept = |place: Option<Place>, visited: i64| Swept {
        part: 1,
        place,
        visited,
    };
    let sweep = marks.sweep();
    assert_eq!(sweep.to_times, [time(50)]);
    let queues = marks.swept(&sweep, &[swept(Some(row("q", 0, 20)), 1)]);
    assert_eq!(queues, ["q"]);
    assert_eq!(shown(&marks.ranges(&all)), ["q/min..0", "q/0@20..max"]);

    let sweep = marks.sweep();
    assert!(
        marks
            .swept(&sweep, &[swept(None, MIN_STRETCH_ENTRIES - 1)])
            .is_empty()
    );
    assert_eq!(shown(&marks.ranges(&all)), ["q/min..max"]);
}

#[test]
fn a_sweep_that_takes_long_looks_less_far_back() {
    let marks = Marks::default();
    let look = marks.ranges(&[(1, "q")]);
    let mark = 1_000_000;
    marks.learn(&look, &[found(1, Some(row("q", 0, mark)), 100)], time(mark));
    assert!(marks.sweep().times[0] < time(0), "from the beginning");
    marks.sweep_took(SWEEP_LONG * 2);
    assert_eq!(marks.sweep().times, [time(mark - 3600)]);
    marks.sweep_took(SWEEP_LONG * 2);
    assert_eq!(marks.sweep().times, [time(mark - 1800)]);
    // It sees only a part of the entries now: no reason to forget them.
    let sweep = marks.sweep();
    let nothing = Swept {
        part: 1,
        place: None,
        visited: 0,
    };
    marks.swept(&sweep, &[nothing]);
    for _ in 0..12 {
        marks.sweep_took(SWEEP_SHORT / 2);
    }
    assert!(marks.sweep().times[0] < time(0), "from the beginning again");
}

#[test]
fn only_the_marks_that_save_most_are_kept() {
    let marks = Marks::default();
    let names: Vec<String> = (0..MAX_STRETCHES + 10)
        .map(|at| format!("q{at:04}"))
        .collect();
    for (visited, name) in (MIN_STRETCH_ENTRIES..).zip(&names) {
        let look = marks.ranges(&[(1, name)]);
        marks.learn(
            &look,
            &[found(1, Some(row(name, 0, 50)), visited)],
            time(60),
        );
    }
    assert_eq!(marks.sweep().queues, names[10..]);
}

#[test]
fn a_moment_of_ours_is_never_later_than_the_databases() {
    let marks = Marks::default();
    assert_eq!(marks.time_at(Instant::now()), DateTime::UNIX_EPOCH);
    marks.record_time(time(1_000));
    let later = Instant::now() + Duration::from_secs(10);
    assert!(marks.time_at(later) < time(1_010) && marks.time_at(later) > time(1_009));
}

#[test]
fn leases_are_asked_about_when_they_may_have_run_out() {
    let mut looked = Looked::default();
    looked.record_leases(&[], [(1, time(30)), (2, time(60))].into_iter());
    assert_eq!(looked.to_ask(time(40)), [1]);
    // It was renewed; the other one has ended.
    looked.record_leases(&[1], [(1, time(90))].into_iter());
    assert_eq!(looked.to_ask(time(70)), [2]);
    looked.record_leases(&[2], std::iter::empty());
    assert_eq!(looked.to_ask(time(80)), [0_i64; 0]);
}

#[test]
fn a_sweep_looks_into_the_gap_before_a_mark_and_counts_both() {
    let marks = Marks::default();
    let all = [(1, "*")];
    let look = marks.ranges(&all);
    let far = Found {
        step: 2,
        after: Some(("a".to_owned(), 0)),
        ..found(1, Some(row("z", 0, 50)), MIN_GAP_ENTRIES)
    };
    marks.learn(&look, &[far], time(60));
    let sweep = marks.sweep();
    assert_eq!(sweep.queues, ["z"]);
    assert_eq!(
        sweep.before.queues,
        ["a", "a ", "z"],
        "up to the pair of the mark"
    );
    let few = |part: i32| Swept {
        part,
        place: None,
        visited: MIN_STRETCH_ENTRIES / 2,
    };
    marks.swept(&sweep, &[few(1), few(3)]);
    assert_eq!(marks.sweep().queues, ["z"], "together they are many");
    let sweep = marks.sweep();
    let row = Swept {
        part: 3,
        place: Some(row("m", 0, 10)),
        visited: 1,
    };
    assert_eq!(marks.swept(&sweep, &[row]), ["m"]);
    let ranges = shown(&marks.ranges(&all));
    assert_eq!(ranges, ["..a", "a/min..1", "m/0@10..max", "m ..~"]);
}

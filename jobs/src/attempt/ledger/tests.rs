use super::*;
use crate::input::Input;

const RUN: HeldRow = HeldRow::Hook(0, 7);

fn ledger(count: usize, bytes: usize) -> Ledger {
    Ledger::new(GroupLimits { count, bytes }, Arc::default())
}

fn job(token: i64) -> Claimed {
    let mut job = Claimed::handed_over(1_000 + token, token, "k".into(), "q".into());
    job.lease_ms = 30_000;
    job.input = Input::None;
    job
}

fn claim(ledger: &Ledger, token: i64) -> Arc<Control> {
    let control = Arc::<Control>::default();
    assert!(ledger.claim(&job(token), Arc::clone(&control), Instant::now()));
    control
}

fn succeed(ledger: &Ledger, token: i64) {
    ledger.end(token, |_| true);
}

fn take_group(ledger: &Ledger, rows_of: impl Fn(&AttemptEnd) -> Vec<HeldRow>) -> Vec<AttemptEnd> {
    ledger.take_group(Instant::now(), false, rows_of)
}

fn defer(ledger: &Ledger, now: Instant, ends: Vec<AttemptEnd>) {
    ledger.defer(now, ends.into_iter().map(|end| (end, RUN)).collect());
}

fn no_rows(_: &AttemptEnd) -> Vec<HeldRow> {
    Vec::new()
}

fn tokens(ends: &[AttemptEnd]) -> Vec<i64> {
    ends.iter().map(AttemptEnd::token).collect()
}

fn known(ledger: &Ledger) -> Vec<i64> {
    let mut tokens = ledger.tokens();
    tokens.sort_unstable();
    tokens
}

#[test]
fn from_its_claim_until_its_commit_an_attempt_is_known() {
    let ledger = ledger(10, 1 << 20);
    claim(&ledger, 1);
    assert_eq!(known(&ledger), [1]);
    succeed(&ledger, 1);
    assert_eq!(known(&ledger), [1]);
    let group = take_group(&ledger, no_rows);
    assert_eq!((known(&ledger), tokens(&group)), (vec![1], vec![1]));
    ledger.put_back(group);
    assert_eq!(known(&ledger), [1]);
    let group = take_group(&ledger, no_rows);
    ledger.committed(&group, no_rows);
    assert!(known(&ledger).is_empty() && ledger.is_drained());
}

#[test]
fn a_token_is_claimed_once_and_ends_once() {
    let ledger = ledger(10, 1 << 20);
    claim(&ledger, 1);
    assert!(!ledger.claim(&job(1), Arc::default(), Instant::now()));
    succeed(&ledger, 1);
    ledger.end(1, |end| {
        end.kind = EndKind::Fail;
        true
    });
    let group = take_group(&ledger, no_rows);
    assert_eq!(group.len(), 1);
    assert_eq!(group[0].kind, EndKind::Succeed);
    assert!(
        take_group(&ledger, no_rows).is_empty(),
        "it is being written"
    );
}

#[test]
fn groups_are_limited_in_count_and_in_bytes() {
    let few = ledger(2, 1 << 20);
    let small = ledger(10, 100);
    for ledger in [&few, &small] {
        for token in 1..=3 {
            claim(ledger, token);
            ledger.end(token, |end| {
                end.set_error("c", &"x".repeat(59));
                true
            });
        }
    }
    assert_eq!(tokens(&take_group(&few, no_rows)), [1, 2]);
    assert_eq!(tokens(&take_group(&few, no_rows)), [3]);
    assert_eq!(tokens(&take_group(&small, no_rows)), [1], "60 bytes each");
    assert_eq!(tokens(&take_group(&small, no_rows)), [2]);
}

#[test]
fn the_ends_of_a_held_row_wait_apart_and_keep_no_other_from_being_written() {
    let ledger = ledger(10, 1 << 20);
    let now = Instant::now();
    let rows = |end: &AttemptEnd| {
        if end.token < 10 {
            vec![RUN]
        } else {
            Vec::new()
        }
    };
    for token in [1, 11] {
        claim(&ledger, token);
        succeed(&ledger, token);
    }
    let group = ledger.take_group(now, false, rows);
    let (mine, other): (Vec<_>, Vec<_>) = group.into_iter().partition(|end| end.token < 10);
    defer(&ledger, now, mine);
    ledger.committed(&other, rows);
    let retry = ledger.next_retry();
    assert!(retry > Some(now) && retry < Some(now + FIRST_RETRY_DELAY * 2));
    // A later end of the held row is deferred with the first, without a transaction.
    for token in [2, 12] {
        claim(&ledger, token);
        succeed(&ledger, token);
    }
    let group = ledger.take_group(now, false, rows);
    assert_eq!(tokens(&group), [12]);
    assert_eq!((ledger.held().0, ledger.uncommitted()), (2, 1));
    assert!(!ledger.is_drained());
    let mut again = tokens(&ledger.take_group(now + FIRST_RETRY_DELAY * 2, false, rows));
    again.sort_unstable();
    assert_eq!(again, [1, 2]);
    assert_eq!(ledger.held(), (0, 0));
}

#[test]
fn a_row_that_stays_held_is_tried_more_and_more_rarely() {
    let ledger = ledger(10, 1 << 20);
    let rows = |_: &AttemptEnd| vec![RUN];
    claim(&ledger, 1);
    succeed(&ledger, 1);
    let mut now = Instant::now();
    let mut last = Duration::ZERO;
    for _ in 0..4 {
        let group = ledger.take_group(now, false, rows);
        assert_eq!(tokens(&group), [1]);
        defer(&ledger, now, group);
        let delay = ledger.state.lock().held[&RUN].delay;
        assert!(delay > last, "{delay:?} after {last:?}");
        last = delay;
        now += delay / 2;
        assert!(ledger.take_group(now, false, rows).is_empty(), "too early");
        now += delay;
    }
    let group = ledger.take_group(now, false, rows);
    ledger.committed(&group, rows);
    assert!(
        ledger.state.lock().probing.is_empty(),
        "the backoff is forgotten"
    );
}

#[test]
fn a_row_that_is_held_for_long_is_tried_at_the_longest_pause() {
    let ledger = ledger(10, 1 << 20);
    let rows = |_: &AttemptEnd| vec![RUN];
    claim(&ledger, 1);
    succeed(&ledger, 1);
    let began = Instant::now();
    let mut now = began;
    let mut longest = Duration::ZERO;
    while now < began + LONG_HELD * 2 {
        let group = ledger.take_group(now, false, rows);
        defer(&ledger, now, group);
        longest = ledger.state.lock().held[&RUN].delay;
        let max = if now < began + LONG_HELD {
            MAX_RETRY_DELAY
        } else {
            MAX_RETRY_DELAY_LONG_HELD
        };
        assert!(longest <= max, "{longest:?} after {:?}", now - began);
        now += longest * 2;
    }
    assert_eq!(longest, MAX_RETRY_DELAY_LONG_HELD);
}

#[test]
fn a_takeover_of_a_held_row_is_dropped() {
    let ledger = ledger(10, 1 << 20);
    let mut lost = AttemptEnd::new(5, 50, 1, None);
    lost.kind = EndKind::Lost;
    assert!(ledger.take_over(lost.clone()));
    assert!(!ledger.take_over(lost.clone()), "it is known");
    let group = take_group(&ledger, no_rows);
    defer(&ledger, Instant::now(), group);
    assert!(known(&ledger).is_empty() && ledger.is_drained());
    assert!(ledger.take_over(lost), "the next tick finds it again");
}

#[test]
fn a_lapsed_attempt_of_this_process_can_be_taken_over() {
    let ledger = ledger(10, 1 << 20);
    claim(&ledger, 1);
    let mut lost = AttemptEnd::new(1_001, 1, 1, None);
    lost.kind = EndKind::Lost;
    assert!(!ledger.take_over(lost.clone()), "it runs");
    ledger.end(1, |_| false);
    assert!(ledger.take_over(lost), "it lapsed");
    let group = take_group(&ledger, no_rows);
    assert_eq!((tokens(&group), group[0].kind), (vec![1], EndKind::Lost));
    ledger.committed(&group, no_rows);
    assert!(ledger.is_drained() && known(&ledger).is_empty());
}

#[test]
fn an_isolated_end_whose_row_is_held_goes_back_to_isolation() {
    let ledger = ledger(10, 1 << 20);
    claim(&ledger, 1);
    succeed(&ledger, 1);
    let mut group = take_group(&ledger, no_rows);
    group[0].isolation_limit = Some(Duration::from_secs(120));
    let now = Instant::now();
    defer(&ledger, now, group);
    let later = now + FIRST_RETRY_DELAY * 2;
    assert!(ledger.take_group(later, false, no_rows).is_empty());
    let group = ledger.take_isolated();
    assert_eq!(
        group.map(|group| group.limit),
        Some(Duration::from_secs(120))
    );
    assert_eq!(ledger.held(), (0, 0));
}

#[test]
fn leases_are_renewed_until_the_end_is_committed() {
    let ledger = ledger(1, 1 << 20);
    let long_ago = Instant::now() - Duration::from_secs(15);
    for token in 1..=4 {
        assert!(ledger.claim(&job(token), Arc::default(), long_ago));
    }
    let due = || {
        let mut due: Vec<i64> = ledger
            .leases_due()
            .iter()
            .map(|(_, token)| *token)
            .collect();
        due.sort_unstable();
        due
    };
    assert_eq!(due(), [1, 2, 3, 4], "running");
    (2..=4).for_each(|token| succeed(&ledger, token));
    let writing = take_group(&ledger, no_rows);
    let held = take_group(&ledger, no_rows);
    defer(&ledger, Instant::now(), held);
    assert_eq!(due(), [1, 2, 3, 4], "running, being written, held, waiting");
    ledger.committed(&writing, no_rows);
    ledger.renewed([1].into_iter(), Instant::now());
    assert_eq!(due(), [3, 4]);
}

#[test]
fn a_running_attempt_stops_before_its_lease_ends_and_a_finished_one_is_kept() {
    let ledger = ledger(10, 1 << 20);
    let long_ago = Instant::now() - Duration::from_secs(26);
    let running = Arc::<Control>::default();
    assert!(ledger.claim(&job(1), Arc::clone(&running), long_ago));
    assert!(ledger.claim(&job(2), Arc::default(), long_ago));
    succeed(&ledger, 2);
    assert_eq!(ledger.stop_lapsed(), [1_001]);
    assert!(running.is_asked_to_stop());
    ledger.end(1, |_| false);
    assert_eq!(known(&ledger), [1, 2], "a lapsed attempt is remembered");
    assert_eq!(tokens(&take_group(&ledger, no_rows)), [2]);
    assert!(!ledger.is_drained() && ledger.is_quiet());
}

#[test]
fn an_isolated_group_is_uncommitted_until_it_is_written() {
    let ledger = ledger(10, 1 << 20);
    claim(&ledger, 1);
    succeed(&ledger, 1);
    let group = take_group(&ledger, no_rows);
    ledger.isolate(group, Duration::from_secs(1));
    assert_eq!(ledger.uncommitted(), 1);
    let group = ledger.take_isolated().map(|group| group.ends);
    let group = group.unwrap_or_default();
    assert_eq!(tokens(&group), [1]);
    ledger.committed(&group, no_rows);
    assert!(ledger.is_drained());
}

#[test]
fn an_abandoned_attempt_is_handed_back_once() {
    let ledger = ledger(10, 1 << 20);
    claim(&ledger, 1);
    assert_eq!(ledger.abandon_all(), [1_001]);
    succeed(&ledger, 1);
    let group = take_group(&ledger, no_rows);
    assert_eq!((group.len(), group[0].kind), (1, EndKind::HandBack));
}

#[test]
fn a_transaction_under_way_keeps_the_ledger_from_being_quiet() {
    let ledger = ledger(10, 1 << 20);
    let under_way = ledger.transaction();
    assert!(!ledger.is_quiet());
    drop(under_way);
    assert!(ledger.is_quiet());
}

#[test]
fn giving_up_drops_what_waits_and_keeps_what_runs() {
    let ledger = ledger(1, 1 << 20);
    for token in 1..=3 {
        claim(&ledger, token);
    }
    succeed(&ledger, 2);
    succeed(&ledger, 3);
    let writing = take_group(&ledger, no_rows);
    let dropped = ledger.give_up();
    assert_eq!(tokens(&dropped.unwritten), [3]);
    assert!(dropped.held.is_empty());
    assert_eq!(known(&ledger), [1, 2]);
    ledger.forget(&writing);
    assert_eq!((known(&ledger), ledger.uncommitted()), (vec![1], 0));
}

#[test]
fn a_row_that_is_held_for_long_is_reported_with_the_ends_that_wait() {
    let ledger = ledger(10, 1 << 20);
    let start = Instant::now();
    for token in 1..=2 {
        claim(&ledger, token);
        succeed(&ledger, token);
    }
    let group = take_group(&ledger, no_rows);
    defer(&ledger, start, group);
    let limit = Duration::from_secs(10);
    assert!(ledger.long_held(start + limit / 2, limit).is_empty());
    let held = ledger.long_held(start + limit, limit);
    assert_eq!(held.len(), 1);
    assert_eq!((held[0].row, held[0].time, held[0].ends), (RUN, limit, 2));
    let mut dropped = tokens(&ledger.give_up().held);
    dropped.sort_unstable();
    assert_eq!(dropped, [1, 2]);
    assert!(ledger.long_held(start + limit, limit).is_empty());
}

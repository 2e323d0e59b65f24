//! Rule 17 in all orders: chains of any shape, registered before and after their upstreams end.

use proptest::collection::vec;
use proptest::prelude::{Strategy as Random, any, prop_assert_eq, proptest};

use super::properties::config;
use super::support::*;

/// A run to be chained, and how it ends if it starts.
#[derive(Debug, Clone)]
struct Link {
    upstreams: Vec<u8>,
    ends: u8,
}

/// Registers and ends runs in an order: those without upstreams, then what is chained to them.
fn chained(roots: usize, links: &[Link], order: &[u16]) -> Vec<R> {
    let mut model = Model::new(&graph_of_one());
    let mut ids: Vec<Option<RunId>> = vec![None; links.len()];
    let mut done = vec![false; links.len()];
    let mut order = order.iter();
    loop {
        let upstreams = |no: usize| -> Vec<usize> {
            let ups = links[no]
                .upstreams
                .iter()
                .map(|up| usize::from(*up) % no.max(1));
            if no < roots { vec![] } else { ups.collect() }
        };
        let known = |no: &usize| ids[*no].is_some();
        let register = (0..links.len()).filter(|no| !known(no) && upstreams(*no).iter().all(known));
        let runs = |no: &usize| ids[*no].is_some_and(|id| model.status(id) == R::Running);
        let end = (0..links.len()).filter(|no| runs(no) && !done[*no]);
        let next: Vec<(bool, usize)> = register
            .map(|no| (true, no))
            .chain(end.map(|no| (false, no)))
            .collect();
        if next.is_empty() {
            break;
        }
        let chosen = usize::from(order.next().copied().unwrap_or(0)) % next.len();
        match next[chosen] {
            (true, no) => {
                let after: Vec<RunId> = upstreams(no).iter().filter_map(|up| ids[*up]).collect();
                ids[no] = Some(then(&mut model, &after));
            }
            (false, no) => {
                let run = ids[no].expect("it is registered");
                done[no] = true;
                match links[no].ends % 6 {
                    0 => drop(model.fail(run, "a")),
                    1 => drop(model.cancel(run)),
                    _ => drop(model.ok(run, "a")),
                }
            }
        }
    }
    ids.into_iter()
        .map(|id| model.status(id.expect("all are registered")))
        .collect()
}

fn graph_of_one() -> GraphSpec {
    graph([job("a")])
}

fn link() -> impl Random<Value = Link> {
    let parts = (vec(any::<u8>(), 1..4), any::<u8>());
    parts.prop_map(|(upstreams, ends)| Link { upstreams, ends })
}

proptest! {
    #![proptest_config(config())]

    /// Rule 17: registration and settlement in any order give the same result, which is the rule's.
    #[test]
    fn chains_end_alike_whatever_came_first(
        links in vec(link(), 1..8),
        roots in 1_usize..4,
        one in vec(any::<u16>(), 0..20),
        two in vec(any::<u16>(), 0..20),
    ) {
        let ends = chained(roots, &links, &one);
        prop_assert_eq!(&ends, &chained(roots, &links, &two));
        for (no, status) in ends.iter().enumerate() {
            let upstreams = links[no].upstreams.iter().map(|up| usize::from(*up) % no.max(1));
            let starts = no < roots || upstreams.clone().all(|up| ends[up] == R::Succeeded);
            let expected = match (starts, links[no].ends % 6) {
                (false, _) => R::Skipped,
                (true, 0) => R::Halted,
                (true, 1) => R::Cancelled,
                (true, _) => R::Succeeded,
            };
            prop_assert_eq!(*status, expected);
        }
    }
}

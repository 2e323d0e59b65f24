//! The graphs: no-op steps that wait for each other, and hand nothing on.

use pipeline::graph::spec::{GraphSpec, Takes};

use crate::graphs::graph;

/// The job of every step.
pub(super) const JOB: &str = "noop";

/// Each step after the one before it.
pub(super) fn chain(size: usize) -> GraphSpec {
    ordered(size, |n| n.checked_sub(1).into_iter().collect())
}

/// A source, a join, and all the others side by side between them.
pub(super) fn fan(size: usize) -> GraphSpec {
    ordered(size, |n| match n {
        0 => Vec::new(),
        n if n + 1 == size && size > 2 => (1..n).collect(),
        _ => vec![0],
    })
}

/// As near to a square as `size` steps come: each after its left and its upper neighbour. The last
/// row may be a shorter one.
pub(super) fn grid(size: usize) -> GraphSpec {
    let side = size.isqrt().max(1);
    ordered(size, |n| {
        let left = n.checked_sub(1).filter(|_| n % side > 0);
        left.into_iter().chain(n.checked_sub(side)).collect()
    })
}

fn ordered(size: usize, before: impl Fn(usize) -> Vec<usize>) -> GraphSpec {
    graph(size, JOB, Takes::Order, before)
}

#[cfg(test)]
mod tests {
    use pipeline::graph::Graph;

    use super::*;

    type Shape = fn(usize) -> GraphSpec;
    const SHAPES: [(&str, Shape); 3] = [("chain", chain), ("fan", fan), ("grid", grid)];

    /// The numbers of the steps that step `n` comes after.
    fn before(graph: &GraphSpec, n: usize) -> Vec<&str> {
        let edges = graph.steps[n].after.iter();
        edges.map(|edge| edge.step.as_str()).collect()
    }

    #[test]
    fn every_shape_compiles_in_every_size() -> Result<(), pipeline::Invalid> {
        for size in [10, 100, 1_000, 10_000] {
            for (name, shape) in SHAPES {
                assert_eq!(Graph::compile(shape(size))?.len(), size, "{name}");
            }
        }
        Ok(())
    }

    #[test]
    fn a_chain_is_one_after_the_other() {
        let graph = chain(3);
        assert_eq!(before(&graph, 0), [""; 0]);
        assert_eq!(before(&graph, 2), ["step-1"]);
    }

    #[test]
    fn a_fan_opens_once_and_closes_once() {
        let graph = fan(5);
        assert_eq!(before(&graph, 0), [""; 0]);
        assert_eq!(before(&graph, 3), ["step-0"]);
        assert_eq!(before(&graph, 4), ["step-1", "step-2", "step-3"]);
    }

    #[test]
    fn a_grid_grows_to_the_right_and_down() {
        let graph = grid(10);
        assert_eq!(before(&graph, 0), [""; 0]);
        assert_eq!(before(&graph, 2), ["step-1"]);
        assert_eq!(before(&graph, 3), ["step-0"]);
        assert_eq!(before(&graph, 4), ["step-3", "step-1"]);
        assert_eq!(before(&graph, 9), ["step-6"]);
    }
}

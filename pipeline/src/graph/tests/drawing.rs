//! Pictures: everything is in them, and nothing that only clutters.

use super::build::*;
use crate::graph::Graph;
use crate::graph::spec::Takes;

fn sample() -> Graph {
    let mut spec = graph([
        job("source"),
        job("thumbnail").after(&["source"]).optional(),
        branch("format", &["hd", "none"]).after(&["source"]),
        job("scale").following(&["format"]).in_arm("format", "hd"),
        merge("merge:format", "format", &[("hd", "scale")]),
        barrier(1),
        job("publish").takes("thumbnail", Takes::Maybe),
        job("cleanup").following(&["publish"]),
    ]);
    spec.display_name = Some("\"Films\" & more".into());
    compile(spec)
}

#[test]
fn mermaid() {
    let expected = r#"---
title: "\"Films\" & more"
---
flowchart TD
  n0["source<br/>work"]
  n1["thumbnail<br/>work<br/>optional"]:::optional
  n2{"format<br/>decide"}
  n4(("end of format"))
  n5["barrier:1"]:::bar
  n6["publish<br/>work"]
  n7["cleanup<br/>work"]
  subgraph arm2_0["hd"]
    n3["scale<br/>work"]
  end
  n0 --> n1
  n0 --> n2
  n2 -->|"hd"| n3
  n3 --> n4
  n2 -->|"none"| n4
  n1 --> n5
  n4 --> n5
  n1 -->|"optional"| n6
  n5 --> n6
  n6 -.-> n7
  classDef bar fill:#444,stroke:#444,color:#fff
  classDef optional stroke-dasharray:4 3
"#;
    assert_eq!(sample().to_mermaid(), expected);
}

#[test]
fn dot() {
    let expected = r#"digraph "video" {
  label="\"Films\" & more"; labelloc=t;
  node [shape=box, style=rounded];
  n0 [label="source\nwork"];
  n1 [label="thumbnail\nwork\noptional", style=dashed];
  n2 [label="format\ndecide", shape=diamond, style=solid];
  n4 [label="end of format", shape=circle, style=solid];
  n5 [label="barrier:1", style=filled, fillcolor=black, fontcolor=white, width=4, height=0.2];
  n6 [label="publish\nwork"];
  n7 [label="cleanup\nwork"];
  subgraph cluster_2_0 { label="hd";
    n3 [label="scale\nwork"];
  }
  n0 -> n1;
  n0 -> n2;
  n2 -> n3 [label="hd"];
  n3 -> n4;
  n2 -> n4 [label="none"];
  n1 -> n5;
  n4 -> n5;
  n1 -> n6 [label="optional"];
  n5 -> n6;
  n6 -> n7 [style=dashed];
}
"#;
    assert_eq!(sample().to_dot(), expected);
}

#[test]
fn arms_stand_in_the_arms_around_them() {
    let graph = valid([
        branch("outer", &["a"]),
        branch("inner", &["x"])
            .following(&["outer"])
            .in_arm("outer", "a"),
        job("deep").following(&["inner"]).in_arm("inner", "x"),
        job("flat").following(&["inner"]).in_arm("outer", "a"),
    ]);
    let drawn = graph.to_mermaid();
    let inner = "  subgraph arm0_0[\"a\"]\n    n1{\"inner<br/>decide\"}\n    n3[\"flat<br/>work\"]\n    \
                 subgraph arm1_0[\"x\"]\n      n2[\"deep<br/>work\"]\n    end\n  end\n";
    assert!(drawn.contains(inner), "{drawn}");
}

#[test]
fn an_error_path_behind_barriers_is_drawn_without_the_edges_between_them() {
    let graph = valid([
        job("a"),
        barrier(1),
        job("b"),
        barrier(2),
        job("mourn").takes("a", Takes::Failure),
    ]);
    let drawn = graph.to_mermaid();
    let arrows: Vec<&str> = drawn.lines().filter(|line| line.contains("-->")).collect();
    let expected = [
        "  n0 --> n1",
        "  n1 --> n2",
        "  n2 --> n3",
        "  n0 -->|\"failed\"| n4",
        "  n3 -->|\"ended\"| n4",
    ];
    assert_eq!(arrows, expected);
}

//! What stands before a step that is about to be declared.

use std::marker::PhantomData;

use jobs::Perform;

use super::branch::{Arms, Branch};
use super::callback::FailureInput;
use super::feeds::{Feeds, NoInput, edge, given};
use super::handle::{Handle, Ignored, Maybe, Step};
use super::plan::{Before, Plan};
use crate::graph::spec::{Edge, Takes};

/// One handle, a tuple of them, or a slice: what a step can come after.
pub trait Upstreams {
    #[doc(hidden)]
    fn order(&self, plan: &Plan) -> Vec<Edge>;
}

macro_rules! one {
    ($($name:ident)*) => {
        $(impl<T> Upstreams for &$name<T> {
            fn order(&self, plan: &Plan) -> Vec<Edge> {
                vec![edge(*self, Takes::Order, plan, "(next)")]
            }
        })*
    };
}

one!(Step Maybe Ignored);

impl<H: Handle> Upstreams for &[H] {
    fn order(&self, plan: &Plan) -> Vec<Edge> {
        self.iter()
            .map(|one| edge(one, Takes::Order, plan, "(next)"))
            .collect()
    }
}

impl<H: Handle> Upstreams for &Vec<H> {
    fn order(&self, plan: &Plan) -> Vec<Edge> {
        self.as_slice().order(plan)
    }
}

impl<H: Handle, const N: usize> Upstreams for &[H; N] {
    fn order(&self, plan: &Plan) -> Vec<Edge> {
        self.as_slice().order(plan)
    }
}

macro_rules! tuples {
    ($($upstream:ident $at:tt),*) => {
        impl<$($upstream: Upstreams),*> Upstreams for ($($upstream,)*) {
            fn order(&self, plan: &Plan) -> Vec<Edge> {
                let mut edges = Vec::new();
                $(edges.extend(self.$at.order(plan));)*
                edges
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);

/// Upstreams whose outputs the next step takes.
#[derive(Debug)]
#[must_use = "say which step comes after: `.step(..)`"]
pub struct After<U> {
    plan: Plan,
    upstreams: U,
    order: Vec<Edge>,
}

impl<U: Upstreams> After<U> {
    pub(crate) fn new(plan: Plan, upstreams: U) -> Self {
        Self {
            plan,
            upstreams,
            order: Vec::new(),
        }
    }

    /// And after these, without taking anything from them.
    pub fn following<O: Upstreams>(mut self, upstreams: O) -> Self {
        self.order.extend(upstreams.order(&self.plan));
        self
    }

    /// The step that comes after them and takes what they give.
    pub fn step<J>(self, key: &str, job: J) -> Step<J::Output>
    where
        J: Perform,
        U: Feeds<J::Input>,
    {
        let before = self.before::<J>(key);
        self.plan.add(key, &job, before)
    }

    /// The step that comes after them, takes what they give, and chooses one of the arms by what it
    /// returns.
    pub fn branch<J, A>(self, key: &str, job: J, arms: A) -> A::Output
    where
        J: Perform<Output: Branch>,
        A: Arms<Of = J::Output>,
        U: Feeds<J::Input>,
    {
        let before = self.before::<J>(key);
        super::branch::declare(&self.plan, key, &job, before, arms)
    }

    fn before<J: Perform>(&self, key: &str) -> Before
    where
        U: Feeds<J::Input>,
    {
        let mut before = given(&self.upstreams, &self.plan, key);
        before.edges.extend(self.order.iter().cloned());
        before
    }
}

/// Upstreams that the next step only comes after.
#[derive(Debug)]
#[must_use = "say which step comes after: `.step(..)` or `.branch(..)`"]
pub struct Following {
    plan: Plan,
    edges: Vec<Edge>,
}

impl Following {
    pub(crate) fn new(plan: Plan, upstreams: &impl Upstreams) -> Self {
        let edges = upstreams.order(&plan);
        Self { plan, edges }
    }

    /// The step that comes after them.
    pub fn step<J>(self, key: &str, job: J) -> Step<J::Output>
    where
        J: Perform<Input: NoInput>,
    {
        self.plan.add(key, &job, Before::all(self.edges))
    }

    /// The step that comes after them and chooses one of the arms by what it returns.
    pub fn branch<J, A>(self, key: &str, job: J, arms: A) -> A::Output
    where
        J: Perform<Input: NoInput, Output: Branch>,
        A: Arms<Of = J::Output>,
    {
        super::branch::declare(&self.plan, key, &job, Before::all(self.edges), arms)
    }
}

/// A step whose failure the next one waits for.
#[derive(Debug)]
#[must_use = "say which step comes after: `.step(..)`"]
pub struct AfterFailure {
    plan: Plan,
    edge: Edge,
}

impl AfterFailure {
    pub(crate) fn new(plan: Plan, of: &impl Handle) -> Self {
        let edge = edge(of, Takes::Failure, &plan, "(next)");
        Self { plan, edge }
    }

    /// The step that runs if it fails. It may take the failure, or nothing.
    pub fn step<J>(self, key: &str, job: J) -> Maybe<J::Output>
    where
        J: Perform<Input: FailureInput>,
    {
        let step = self.plan.add(key, &job, Before::all(vec![self.edge]));
        Maybe::at(step.plan().clone(), Handle::at(&step))
    }
}

/// Steps of which the first to succeed gives the next one its input.
#[derive(Debug)]
#[must_use = "say which step comes after: `.step(..)`"]
pub struct AfterAny<T> {
    plan: Plan,
    edges: Vec<Edge>,
    gives: PhantomData<fn() -> T>,
}

impl<T: 'static> AfterAny<T> {
    pub(crate) fn new<'a>(plan: Plan, of: impl IntoIterator<Item = &'a Step<T>>) -> Self {
        let edges = of
            .into_iter()
            .map(|one| edge(one, Takes::Value, &plan, "(next)"))
            .collect();
        Self {
            plan,
            edges,
            gives: PhantomData,
        }
    }

    /// The step that runs once one of them has succeeded.
    pub fn step<J>(self, key: &str, job: J) -> Step<J::Output>
    where
        J: Perform<Input = T>,
    {
        self.plan.add(key, &job, Before::any(self.edges))
    }
}
